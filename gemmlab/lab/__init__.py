"""The lab: kernels climbed, judged, timed and explained; its results are records."""
