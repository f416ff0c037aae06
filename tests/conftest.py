"""Makes machine.py known to the tests in every folder: pytest puts this folder on the path."""

import signal

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would all that they
# start. Some of them send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
