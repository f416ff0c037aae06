"""Entry point of `gemmlab` and `python -m gemmlab`."""

import os
import signal
import sys


def main() -> None:
    """Run the command line in a supervised process, and exit."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # until the supervisor runs
    from gemmlab.cli import supervisor

    supervisor.split()
    try:
        from gemmlab.cli.app import main as run
    except ImportError:
        _check_packages()
        raise

    run()


def _check_packages() -> None:
    """Exit with a sentence if a package that the command line needs is missing or broken."""
    from gemmlab.core.packages import RICH, TYPER
    from gemmlab.errors import MissingDependencyError

    try:
        for package in (TYPER, RICH):
            package.load()
    except MissingDependencyError as error:
        print(f"gemmlab: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    # `python -m` would import first from the current folder, which may hold strangers' files.
    try:
        folder = os.getcwd()
    except FileNotFoundError:  # it was deleted
        folder = ""
    if sys.path[0] == folder and not __file__.startswith(os.path.join(folder, "")):
        del sys.path[0]
    main()
