"""Starter files for new kernels: the simplest correct kernel of each problem."""

from __future__ import annotations

from pathlib import Path

from gemmlab.errors import InputError, UnknownNameError

FOLDER = Path(__file__).parent / "starters"
LANGUAGES = {"cu": ".cu", "cute": ".py"}


def text(problem: str, language: str) -> str:
    """Return the starter file's text. Raises UnknownNameError if there is none."""
    if language not in LANGUAGES:
        raise UnknownNameError(f"unknown language {language!r}; choose {', '.join(LANGUAGES)}")
    file = FOLDER / f"{problem.replace('-', '_')}{LANGUAGES[language]}"
    known = sorted(path.stem.replace("_", "-") for path in FOLDER.glob(f"[!_]*{file.suffix}"))
    if problem not in known:
        raise UnknownNameError(f"no starter file for {problem!r}; choose {', '.join(known)}")
    return file.read_text(encoding="utf-8")


def write(problem: str, language: str, target: Path | None) -> Path:
    """Write the starter file to `target`, by default a file named after the problem.

    Raises InputError if the file already exists or cannot be written.
    """
    content = text(problem, language)
    path = target or Path(problem + LANGUAGES[language])
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(content)
    except FileExistsError:
        raise InputError(f"{path} already exists; choose another name with -o") from None
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
    return path
