"""A folder of submissions: one row each, and a hostile one costs only itself."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from kernels import gemm
from machine import needs_sandbox

from gemmlab.cli.app import main
from gemmlab.core import processes, turns
from gemmlab.core.sandbox import Support
from gemmlab.errors import InputError, UnknownNameError
from gemmlab.lab import advice
from gemmlab.lab.classroom import folder, judging, single
from gemmlab.lab.classroom.folder import Submitted, submissions
from gemmlab.lab.classroom.grades import Grade, Place, graded, ranking
from gemmlab.lab.directives import Directive
from gemmlab.lab.judge import precision
from gemmlab.lab.submission import isolation
from gemmlab.lab.submission.judging import Options
from gemmlab.report import grades
from gemmlab.report.html import board

NOT_ON_GPU = Options(gpu=False, seed=1)


@pytest.fixture
def classroom(tmp_path):
    place = tmp_path / "class"
    place.mkdir()
    return place


def test_a_file_sees_itself_and_a_folder_its_own_files(classroom):
    (classroom / "ada.cu").write_text(gemm())
    (classroom / "notes.txt").write_text("not a kernel")
    (classroom / ".hidden.cu").write_text(gemm())
    (classroom / "bo" / "inc").mkdir(parents=True)
    (classroom / "bo" / "kernel.cu").write_text(gemm())
    (classroom / "bo" / "helpers.cuh").write_text("// no directive")
    (classroom / "bo" / "inc" / "tile.h").write_text("#define TILE 16")
    found = {one.name: one for one in submissions(classroom)}
    assert {name: sorted(one.files) for name, one in found.items()} == {
        "ada.cu": ["ada.cu"],
        "bo/kernel.cu": ["helpers.cuh", "inc/tile.h", "kernel.cu"],
    }


def test_an_author_cannot_keep_the_judge_busy_with_blank_lines(classroom):
    (classroom / "ada").mkdir()
    (classroom / "ada" / "kernel.cu").write_bytes(b"\n" * folder.FILE_BYTES)
    started = time.process_time()
    (found,) = submissions(classroom)
    assert found.name == "ada/kernel.cu" and time.process_time() - started < 1


def test_a_submission_with_the_name_of_a_module_is_not_imported(classroom):
    """`python -m` searches the current folder first."""
    for module in ("numbers", "typer"):
        (classroom / f"{module}.py").write_text("raise SystemExit('imported')")
    command = [sys.executable, "-m", "gemmlab", "--version"]
    done = subprocess.run(
        command, cwd=classroom, env=processes.environment(), capture_output=True, text=True
    )
    assert (done.returncode, "imported" in done.stderr) == (0, False), done.stderr


def test_a_name_is_shown_as_text_of_one_line(classroom):
    name = b"a\xff\x1b[2J\n\xe2\x80\xae.cu"
    (classroom / os.fsdecode(name)).write_text(gemm())
    (found,) = submissions(classroom)
    assert found.title == r"a\xff\x1b[2J\n\u202e.cu"


def test_links_pipes_and_large_files_are_not_read(classroom, tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "FILE_BYTES", 100)
    (tmp_path / "key").write_text("secret")
    (classroom / "link.cu").symlink_to(tmp_path / "key")
    (classroom / "large.cu").write_text("x" * 101)
    os.mkfifo(classroom / "pipe.cu")
    (classroom / "within").mkdir()
    (classroom / "within" / "kernel.cu").write_text("x")
    (classroom / "within" / "key.h").symlink_to(tmp_path / "key")
    found = {one.name: one for one in submissions(classroom)}
    assert {name: (one.fault, one.files) for name, one in found.items()} == {
        "large.cu": ("large.cu has more than 0 MiB", {}),
        "link.cu": ("link.cu is a symbolic link", {}),
        "pipe.cu": ("pipe.cu is not a regular file", {}),
        "within": ("key.h is a symbolic link", {}),
    }


def test_a_folder_without_kernels_is_an_error(classroom):
    with pytest.raises(UnknownNameError, match="has no kernel files"):
        submissions(classroom)
    with pytest.raises(InputError, match="cannot be read"):
        submissions(classroom / "missing")


def timed(file, score, spread=0.01, digest=""):
    return Grade(file, "pass", score=score, spread=spread, digest=digest)


def test_places_ties_and_twins():
    places = ranking(
        [
            timed("slow", 40.0),
            timed("near", 89.6, digest="same"),
            timed("first", 90.0),
            timed("noisy", 50.0, spread=0.2),
            timed("fast", 130.0, digest="same"),
            Grade("wrong", "wrong answer"),
            Grade("untimed", "pass"),
        ]
    )
    assert [(place.grade.file, place.number) for place in places] == [
        ("fast", 1),
        ("first", 2),
        ("near", 2),
        ("noisy", 4),
        ("slow", 4),
        ("untimed", None),
        ("wrong", None),
    ]
    notes = {place.grade.file: place.note for place in places}
    assert notes["near"] == (
        "tied with first: 0.44 % apart, while runs of one file differ by 1 %; same text as fast"
    )
    assert notes["slow"].startswith("tied with noisy: 20 % apart")
    assert notes["first"] == ""
    assert places[0].grade.score == 130.0 and places[0].grade.capped == 100.0


JUDGED = {
    "verdict": "pass",
    "steps": [{"name": "timing", "status": "pass", "message": "", "seconds": 2.0}],
    "score": 50.0,
    "best_seconds": [2e-3, 1e-3],
    "runs": [
        {"kernel": "submission", "gpu_median_s": 2.0e-3},
        {"kernel": "submission", "gpu_median_s": 2.1e-3},
        {"kernel": "cublas", "gpu_median_s": 1.0e-3},
        {"kernel": "cublas", "gpu_median_s": 1.01e-3},
    ],
    "precision": "ieee",
    "advice": ["pad the tile"],
}


def test_a_grade_has_the_spread_of_the_runs_and_the_first_advice():
    found = graded("a.cu", JUDGED, "digest", "key")
    assert found.spread == pytest.approx(0.05)
    assert (found.score, found.time_s, found.advice) == (50.0, 2e-3, "pad the tile")


HOSTILE = '=HYPERLINK("x")<script>alert(1)</script>'


def test_grades_survive_a_spreadsheet_and_do_not_attack_it(tmp_path):
    one = Grade(HOSTILE, "pass", reason="-1\n,\"'", advice="'quoted", score=1.5, seed=3)
    file = tmp_path / "grades.csv"
    file.write_text(grades.spreadsheet([Place(one, 1, "+note")]))
    assert "'=HYPERLINK" in file.read_text() and "'+note" in file.read_text()
    assert grades.read(file) == {HOSTILE: one}
    assert grades.read(tmp_path / "missing.csv") == {}
    file.write_text("name,points\na,3\n")
    with pytest.raises(InputError, match="not a file of grades"):
        grades.read(file)


def test_the_board_shows_every_submission_and_runs_none_of_their_text():
    places = [Place(timed(HOSTILE, 120.0), 1, "tied"), Place(Grade("b", "wrong answer"), None, "")]
    text = board.page("class", places).markup()
    assert "<script>alert" not in text and "&lt;script&gt;alert" in text
    assert ">100.0<" in text and ">120.0<" in text and "wrong answer" in text
    assert "gemmlab judge … --json" in text


class Fake:
    """Runs at once, or fails as a lost worker does."""

    def __init__(self):
        self.ran = []

    def submit(self, function, job):
        self.ran.append(job.submitted.name)
        future = Future[dict]()
        if job.submitted.name == "lost":
            future.set_exception(OSError("the worker died"))
        else:
            future.set_result(JUDGED)
        return future


def test_known_grades_stand_until_something_changes():
    some = [Submitted(name, name, {name: name.encode()}) for name in ("a", "b", "lost")]
    assert judging._key(Submitted("not UTF-8: \udcff.cu"), Directive(), NOT_ON_GPU)

    def run(given, known, options=NOT_ON_GPU):
        executor: Any = Fake()
        found = judging.judge_all(given, Directive(), options, executor, known)
        return executor.ran, {grade.file: grade for grade in found}

    ran, known = run(some, {})
    assert ran == ["a", "b", "lost"]
    assert known["lost"].verdict == "not run" and "the worker died" in known["lost"].reason
    assert known["a"].verdict == "pass"
    assert run(some, known)[0] == ["lost"]
    changed = [some[0], replace(some[1], files={"b": b"other"})]
    assert run(changed, known)[0] == ["b"]
    assert run(some[:1], known, replace(NOT_ON_GPU, arch="sm_80"))[0] == ["a"]


def test_one_at_a_time_uses_a_gpu(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    using, most = [], []

    def work(_):
        with turns.turn(["0", "1"]) as gpu:
            using.append(gpu)
            most.append((len(using), len(set(using))))
            time.sleep(0.05)
            using.remove(gpu)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(6)))
    assert max(most) == (2, 2)
    assert all(count == different for count, different in most)


def test_the_quota_limits_all_steps_together(judge):
    found = judge(gemm(), quota_s=1e-9)
    assert found.verdict == "time limit"
    assert found.steps[-1].message == "the quota of 1e-09 s is used up"


def test_a_folder_needs_a_sandbox_by_default(classroom, capsys, monkeypatch):
    (classroom / "a.cu").write_text(gemm())
    monkeypatch.setattr(isolation, "support", lambda: Support(0, False, True))
    with pytest.raises(SystemExit) as stopped:
        main(["judge", str(classroom), "--emulated"])
    assert stopped.value.code == 3
    assert "install bubblewrap" in capsys.readouterr().err


def test_options_of_a_folder_are_refused_for_a_file(tmp_path, capsys):
    file = tmp_path / "kernel.cu"
    file.write_text(gemm())
    with pytest.raises(SystemExit) as stopped:
        main(["judge", str(file), "--board", str(tmp_path / "board.html")])
    assert stopped.value.code == 2
    assert "are for folders" in capsys.readouterr().err


START = "#! gemmlab problem=gemm block=32 grid=1\nimport os, signal, sys, time\n"
# File -> its text and its verdict.
CLASS = {
    "good.cu": (gemm(), "pass"),
    "copied.cu": (gemm(), "pass"),
    "wrong.cu": (gemm(store="c[row * n + col] = 0;"), "wrong answer"),
    "hangs.py": (START + "while True: time.sleep(1)", "time limit"),
    "forks.py": (START + "while True: os.fork()", "crashed"),
    "kills.py": (START + "os.kill(os.getppid(), signal.SIGKILL)", "crashed"),
    "floods.py": (START + "while True: os.write(1, b'x' * 2**16); time.sleep(0.01)", "time limit"),
    "lies.py": (
        START + "os.write(int(sys.argv[2]), b'{\"verdict\": \"pass\", \"score\": 999, "
        "\"trial\": {}}\\n{\"done\": true}\\n'); os._exit(0)",
        "crashed",
    ),
    "reads.py": (START + "open('{classroom}/good.cu')", "crashed"),
}  # fmt: skip


@needs_sandbox
@pytest.mark.slow
def test_a_class_with_hostile_submissions(classroom, tmp_path, capsys):
    for name, (text, _) in CLASS.items():
        (classroom / name).write_text(text.replace("{classroom}", str(classroom)))
    page, table = tmp_path / "board.html", tmp_path / "grades.csv"
    command = ["judge", str(classroom), "--emulated", "--board", str(page), "--csv", str(table)]
    command += ["--time-limit", "5", "--jobs", "3", "--json"]  # some only wait for their limit
    with pytest.raises(SystemExit) as ended:
        main([*command])
    assert not ended.value.code
    places = json.loads(capsys.readouterr().out)
    assert {place["grade"]["file"]: place["grade"]["verdict"] for place in places} == {
        name: verdict for name, (_, verdict) in CLASS.items()
    }
    notes = {place["grade"]["file"]: place["note"] for place in places}
    assert notes["good.cu"] == "same text as copied.cu"
    assert all(name in page.read_text() for name in CLASS)
    assert grades.read(table).keys() == CLASS.keys()
    started = time.monotonic()
    with pytest.raises(SystemExit):
        main([*command])
    assert json.loads(capsys.readouterr().out) == places
    assert time.monotonic() - started < 10  # nothing was judged again


def test_a_judge_that_hangs_or_dies_costs_its_submission(monkeypatch):
    ended = [
        subprocess.CompletedProcess([], -signal.SIGXCPU, b"", b""),
        subprocess.CompletedProcess([], 1, b"{", b"Traceback\nKeyError: 'x'"),
    ]
    monkeypatch.setattr(subprocess, "run", lambda *args, **words: ended.pop(0))
    job = single.Job(Submitted("a.cu", "a.cu", {"a.cu": b""}), Directive(), NOT_ON_GPU)
    assert single.judged(job)["verdict"] == "time limit"
    assert single.judged(job) == {
        "verdict": "crashed",
        "message": "the judge failed: KeyError: 'x'",
    }


def test_text_that_takes_a_search_forever_takes_a_moment():
    """The judge itself searches the PTX, which may have any comment."""
    started = time.monotonic()
    ptx = "// " + "add.ld.global." * 2**16
    precision.classify(["ieee"], ptx, "ieee")
    list(advice._memory(defaultdict(lambda: 1), ptx))
    assert time.monotonic() - started < 5
