"""The command line. Results go to stdout, progress and errors to stderr.

Exit codes: 0 success; 1 a verdict failed, a rung could not run or became slower, or gemmlab has a
bug; 2 an invalid option or value, source that does not compile, or what gemmlab cannot do; 3 no
device, a missing package, no sandbox, or a lost process; 4 an error in the emulated kernel; 130
interrupted. `errors.py` has the code of each error; supervisor.py handles interrupts.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated

import typer
from typer.main import get_command

from gemmlab.cli.bench import bench
from gemmlab.cli.climb import climb
from gemmlab.cli.compare import compare
from gemmlab.cli.distributed import distributed
from gemmlab.cli.docs import docs
from gemmlab.cli.emulate import emulate
from gemmlab.cli.env import env
from gemmlab.cli.explain import explain
from gemmlab.cli.export import export
from gemmlab.cli.judge import judge
from gemmlab.cli.list import list_
from gemmlab.cli.new import new
from gemmlab.cli.report import report
from gemmlab.cli.show import show
from gemmlab.cli.tune import tune
from gemmlab.core import processes, status
from gemmlab.errors import GemmlabError, InputError

app = typer.Typer(
    name="gemmlab",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit. Print gemmlab's own errors without a traceback."""
    processes.collect_seldom()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # an old locale may have no "→"
            stream.reconfigure(errors="replace")
    try:
        _command()(args=None if args is None else list(args), prog_name="gemmlab")
    except GemmlabError as error:
        print(f"gemmlab: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        print(f"gemmlab: {error}", file=sys.stderr)
        sys.exit(InputError.exit_code)
    except MemoryError as error:
        print(f"gemmlab: not enough memory: {error or 'try a smaller shape'}", file=sys.stderr)
        sys.exit(InputError.exit_code)
    finally:
        status.say("ending")


@cache
def _command() -> Callable[..., object]:
    """Return the parser of all commands, which takes 30 ms to make."""
    return get_command(app)


def _version(wanted: bool) -> None:
    if wanted:
        from gemmlab.lab.environment import own_version

        print(f"gemmlab {own_version()}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Write GPU kernels in Python; see on any machine why they are fast or slow."""


# The order of the list in --help.
app.command()(climb)
app.command(name="list")(list_)
_MORE = (show, explain, tune, emulate, new, judge, bench, compare, report, export, env, docs)
for command in _MORE:
    app.command()(command)
app.add_typer(distributed, name="distributed")
