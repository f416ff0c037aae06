"""The library face: products of matrices that are already there."""
