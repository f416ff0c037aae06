"""Judge a folder of submissions: one process each, one row each."""
