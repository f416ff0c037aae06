"""The lab: runs, judges, times and explains kernels. Its results are records."""
