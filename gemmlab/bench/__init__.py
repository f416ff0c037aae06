"""Times, by NVBench's protocol, against cuBLAS and others in the same run. docs/measuring.md."""
