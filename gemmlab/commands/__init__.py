"""The commands that take more than a few lines; cli.py has the rest."""
