"""Run planned launches: on a device, through the CUDA driver, or as a CUDA graph."""
