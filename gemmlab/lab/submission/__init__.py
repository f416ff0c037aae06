"""Somebody's kernel file, judged step by step in processes of their own: `gemmlab docs judging`."""
