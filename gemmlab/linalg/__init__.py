"""The library: products of float32 matrices that are already in memory."""
