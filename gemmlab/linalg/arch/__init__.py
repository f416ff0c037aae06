"""What the library knows of a GPU architecture: kernels, tiles, times. One file for each."""
