"""Files to start a kernel of one's own from: the simplest right kernel of each problem."""

from __future__ import annotations

from pathlib import Path

from gemmlab.errors import InputError, UnknownNameError

FOLDER = Path(__file__).parent / "starters"
LANGUAGES = {"cu": ".cu", "cute": ".py"}


def text(problem: str, language: str) -> str:
    """The starting file. Raises UnknownNameError for a problem or language that has none."""
    if language not in LANGUAGES:
        raise UnknownNameError(f"no language {language!r}; there is: {', '.join(LANGUAGES)}")
    file = FOLDER / f"{problem.replace('-', '_')}{LANGUAGES[language]}"
    known = sorted(path.stem.replace("_", "-") for path in FOLDER.glob(f"[!_]*{file.suffix}"))
    if problem not in known:
        raise UnknownNameError(f"no start for {problem!r}; there is: {', '.join(known)}")
    return file.read_text(encoding="utf-8")


def write(problem: str, language: str, target: Path | None) -> Path:
    """Write it to `target`, by default to a file named after the problem; never over another file.

    Raises InputError for a file that is there or cannot be written.
    """
    content = text(problem, language)
    path = target or Path(problem + LANGUAGES[language])
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(content)
    except FileExistsError:
        raise InputError(f"{path} is there already; choose another name with -o") from None
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
    return path
