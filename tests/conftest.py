"""Makes machine.py known to the tests in every folder: pytest puts this folder on the path."""
