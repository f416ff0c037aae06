"""Makes machine.py known to the tests in every folder: pytest puts this folder on the path."""

import signal

# A shell that starts the tests in the background, or nohup, has them ignore signals, and so would
# all that they start. Some of them send these.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(number) is signal.SIG_IGN:
        handler = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, handler)
