"""Utilities that all parts share: processes, files, text. Nothing here depends on kernels."""
