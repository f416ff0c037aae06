"""What every part may use: processes, files and texts, and nothing about kernels."""
