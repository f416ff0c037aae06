"""Tiers, tiles, launches and memory of a product. Arithmetic alone, no GPU."""
