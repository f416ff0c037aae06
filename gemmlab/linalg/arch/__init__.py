"""One file per GPU architecture: its kernels, tile sizes and measured times."""
