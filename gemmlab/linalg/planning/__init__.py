"""Tiers, tiles and launches of a product, and where its memory is. Arithmetic alone, no GPU."""
