"""`python -m gemmlab` is `gemmlab`."""

from gemmlab.cli import main

main()
