"""Entry point of `gemmlab` and `python -m gemmlab`."""

import os
import signal


def main() -> None:
    """Run the command line in a supervised process, and exit."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # until the supervisor runs
    from gemmlab.cli import supervisor

    supervisor.split()

    from gemmlab.cli.app import main as run

    run()


if __name__ == "__main__":
    main()
