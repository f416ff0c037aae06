"""One file for each problem and language; start.py hands them out."""
