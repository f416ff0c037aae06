"""Judge a user's kernel file step by step, in separate processes: see `gemmlab docs judging`."""
