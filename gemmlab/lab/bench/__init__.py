"""Times, by NVBench's protocol, against libraries in the same run: `gemmlab docs measuring`."""
