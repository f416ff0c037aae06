"""Makes machine.py known to the tests in every folder: pytest puts this folder on the path."""

import signal

# A shell that starts the tests in the background has them ignore keys, and so would all that they
# start. Some of them send such signals.
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)
