"""Starter files, one for each problem and language, which start.py copies."""
