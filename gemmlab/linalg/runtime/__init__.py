"""Planned launches, run on a device, through the CUDA driver, or as a CUDA graph."""
