"""Time kernels and libraries in one run, by NVBench's protocol: see `gemmlab docs measuring`."""
