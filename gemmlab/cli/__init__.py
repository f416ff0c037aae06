"""The command line: a file for each command, the options that several share, and the supervisor."""
