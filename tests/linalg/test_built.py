"""Built kernels: the list of them, when they are used, and how missing ones are compiled."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmlab.compile.artifact import Artifact
from gemmlab.core import built
from gemmlab.cubin import tools
from gemmlab.errors import CompileError, MissingDependencyError
from gemmlab.kernels.gemm.sm90.config import SCHEMES
from gemmlab.lab import environment
from gemmlab.linalg.arch import ARCHITECTURES
from gemmlab.linalg.arch.sm90 import SM90
from gemmlab.linalg.planning import prepared, times, variants
from gemmlab.linalg.planning.launch import Code, WorkspaceAddresses
from gemmlab.linalg.planning.program import Factor, Job
from gemmlab.linalg.planning.tiers import Choice, fallback_of
from gemmlab.linalg.planning.times import Case
from gemmlab.linalg.runtime import building, kernels
from gemmlab.linalg.runtime import built as runtime
from gemmlab.linalg.shapes import Operand, Stack

ROOT = str(built.PACKAGE).encode()
CODES = variants.kernels(SM90)
# What `decide` is asked for products of a row-major a and b, on the GPU that was measured.
NAMES = (("ieee", None), ("fp16x3", "bf16x6"), ("fma", None))
QUESTION = SM90.capability, SM90.multiprocessors, (True, False), (NAMES,)
FORMULA = "def traced(m, n, k, batch):\n return 'built' if m < 100 else None\n"
SIZES = st.integers(1, 40_000) | st.integers(0, 15).map(lambda e: 2**e)


@pytest.mark.parametrize("arch", ARCHITECTURES.values(), ids=lambda arch: arch.target)
def test_the_built_kernels_of_this_tree_are_current(arch):
    """If this fails, run scripts/build-kernels."""
    manifest = built.read(built.FOLDER / arch.target)
    if manifest is not None:
        assert manifest.changed() == []
        assert manifest.sources.keys() == {*building.sources(arch)}
        assert manifest.kernels.keys() == {runtime.name_of(x) for x in variants.kernels(arch)}


def test_each_kernel_is_listed_once_and_has_its_own_file():
    assert len(CODES) == len({*CODES}) == len({runtime.name_of(code) for code in CODES})
    assert {name for name, *_ in CODES} == SM90.kernels.keys()


@given(
    m=SIZES,
    n=SIZES,
    k=SIZES,
    batch=st.integers(1, 3),
    k_major=st.tuples(st.booleans(), st.booleans()),
    scheme=st.sampled_from(sorted(SCHEMES)),
    by_default=st.booleans(),
    swapped=st.booleans(),
    kept=st.sampled_from([(None, None), (0, None), (None, 0), (0, 0)]),
    sms=st.integers(2, 200),
)
def test_products_launch_listed_kernels_alone(
    m, n, k, batch, k_major, scheme, by_default, swapped, kept, sms
):
    fallback = fallback_of(scheme, Case(m, n, k, batch, SM90.capability)) if by_default else None
    left, right = (
        Factor(name, Operand(vectors, k, major, k, batch), scheme, fallback, at, SM90)
        for name, vectors, major, at in zip(
            "ba" if swapped else "ab", (m, n), k_major, kept, strict=True
        )
    )
    job = Job(left, right, Stack(m, n, n, 1, batch), Choice(scheme, "", fallback, SM90))
    launched = {launch.code for launch in job.launches(WorkspaceAddresses(0, 0, 0), sms)}
    assert launched <= {*CODES}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of two built kernels, whose code is not real."""
    monkeypatch.setattr(built, "FOLDER", tmp_path)
    monkeypatch.setattr(kernels, "_loadable", {})
    made = [("one", b"\x7fELF 1"), ("two", b"\x7fELF 2")]
    described = {
        runtime.name_of(code): ({"entry": entry, "parameters": [["u64", 8, 8, True, "x"]]}, cubin)
        for code, (entry, cubin) in zip(CODES, made, strict=False)
    }
    compiler = {"nvidia-cutlass-dsl": "4.8.1"}
    formulas = {times.name_of(times.decide, *QUESTION): FORMULA}
    built.write(tmp_path / SM90.target, compiler, building.sources(SM90), described, formulas)
    built.current.cache_clear()
    times.formulas.cache_clear()
    yield tmp_path / SM90.target
    built.current.cache_clear()
    times.formulas.cache_clear()


def refuse(_: Code) -> Artifact:
    raise MissingDependencyError("no compiler")


@pytest.mark.usefixtures("folder")
def test_a_built_kernel_needs_no_compiler(monkeypatch):
    monkeypatch.setattr(kernels, "artifact", refuse)
    kernels.prepare(CODES[:2])
    found = kernels.loadable(CODES[1])
    assert (found.entry, found.cubin, found.arch) == ("two", b"\x7fELF 2", "sm_90a")
    assert found.parameters[0].name == "x" and found.parameters[0].is_pointer
    assert found.versions == {"nvidia-cutlass-dsl": "4.8.1"}


@pytest.mark.parametrize("harm", ["damaged", "missing", "no manifest", "half a manifest"])
def test_a_kernel_that_is_not_whole_is_compiled(folder, monkeypatch, harm):
    first = folder / f"{runtime.name_of(CODES[0])}.cubin"
    manifest = folder / "manifest.json"
    if harm == "damaged":
        first.write_bytes(b"\x7fELF 3")
    elif harm == "missing":
        first.unlink()
    elif harm == "no manifest":
        manifest.unlink()
    else:
        manifest.write_text(manifest.read_text()[:200])
    compiled = Artifact(entry="compiled", ptx="", arch="sm_90a", parameters=())
    monkeypatch.setattr(kernels, "compile_all", lambda codes: [compiled for _ in codes])
    assert kernels.loadable(CODES[0]) is compiled


def test_kernels_of_other_sources_are_not_used_and_not_released(folder, monkeypatch):
    pins = ["numpy", "nvidia-cutlass-dsl==4.8.1"]
    assert built.problem(folder, pins) is None
    assert environment.report()["built_kernels"] == "2 for sm_90a"
    monkeypatch.setattr(built, "PACKAGE", folder)  # a package that has none of the files
    built.current.cache_clear()
    assert runtime.find(CODES[0]) is None
    assert environment.report()["built_kernels"] == "2 for sm_90a (outdated, not used)"
    built.current.cache_clear()
    assert "kernels/gemm/sm90/pack.py" in str(built.problem(folder, pins))


def test_a_release_needs_the_compiler_that_it_names_and_every_cubin(folder):
    assert "4.8.1" in str(built.problem(folder, ["nvidia-cutlass-dsl==4.8.2"]))
    name = runtime.name_of(CODES[0])
    (folder / f"{name}.cubin").write_bytes(b"")
    assert str(built.problem(folder, ["nvidia-cutlass-dsl==4.8.1"])).startswith(f"{name}.cubin")
    (folder / "manifest.json").write_text("{}")
    assert "cannot be read" in str(built.problem(folder, []))


@pytest.mark.usefixtures("folder")
def test_built_formulas_are_used_where_they_apply():
    gpu, options = QUESTION[:-1], QUESTION[-1]
    decide = times.formulas(times.decide, *gpu, *options)
    own = times.new_formulas(times.decide, *gpu, options)
    assert decide(64, 4096, 4096, 1) == "built"
    for m in range(1000, 1020):  # for which it makes formulas
        assert decide(m, 4096, 4096, 1) == own(m, 4096, 4096, 1) != "built"
    assert decide.text and decide(64, 4096, 4096, 1) == "built"


@pytest.mark.parametrize("harm", ["missing", "empty", "half a file", "other sources"])
def test_formulas_that_are_not_there_are_made(folder, monkeypatch, harm):
    (file,) = folder.glob("*.py")
    if harm == "missing":
        file.unlink()
    elif harm != "other sources":
        file.write_text("" if harm == "empty" else FORMULA[:-5])
    else:
        monkeypatch.setattr(built, "PACKAGE", folder)
    decide = times.formulas(times.decide, *QUESTION[:-1], *QUESTION[-1])
    assert decide(64, 4096, 4096, 1) not in ("built", None)


def test_a_release_needs_every_formula(folder):
    (file,) = folder.glob("*.py")
    file.write_text("")
    assert str(built.problem(folder, ["nvidia-cutlass-dsl==4.8.1"])).startswith(file.name)


def test_formulas_for_a_release_are_those_that_products_ask_for(monkeypatch):
    monkeypatch.setattr(prepared, "SHAPES", 40)
    texts, asked = prepared.texts(SM90), 0
    for m, n, k, batch in prepared.shapes():
        case = Case(m, n, k, batch, SM90.capability, SM90.multiprocessors, QUESTION[2])
        for function, options in prepared.questions(case):
            text = texts.get(times.name_of(function, *QUESTION[:3], options), "traced = None")
            space: dict[str, Any] = {}
            exec(text, space)
            found = space["traced"] and space["traced"](m, n, k, batch)
            if found is not None:
                asked += 1
                assert chosen(found) == chosen(function(case, *options))
    assert asked > 40


def chosen(answer):
    """Of a decision: the tier, its tiles and the times. A formula also has tiles of other tiers."""
    if not isinstance(answer, tuple):
        return answer
    tier, tiles, seconds = answer
    return tier, tiles[tier], seconds


@pytest.mark.parametrize("file", ["kernels/gemm/sm90/pack.py", "linalg/planning/plan.py"])
def test_sources_are_those_of_the_code_and_of_the_list(file):
    assert file in building.sources(SM90)


@pytest.fixture
def nothing(tmp_path, monkeypatch):
    """No built kernels, and an empty cache."""
    monkeypatch.setattr(built, "FOLDER", tmp_path / "built")
    monkeypatch.setattr(kernels, "_loadable", {})
    monkeypatch.setenv("GEMMLAB_CACHE", str(tmp_path / "cache"))
    kernels.artifact.cache_clear()
    built.current.cache_clear()


@pytest.mark.usefixtures("nothing")
@pytest.mark.slow
def test_missing_kernels_are_compiled_in_child_processes_and_built(monkeypatch):
    small = [code for code in CODES if code[0] in ("find_peaks", "repack")][:2]
    monkeypatch.setattr(variants, "kernels", lambda _: small)
    monkeypatch.setattr(prepared, "SHAPES", 8)
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "cutlass", None)  # this process compiles nothing
        kernels.prepare(small)
        manifest = building.build(SM90)
    compiled = [kernels.loadable(code) for code in small]
    kernels._loadable.clear()
    built.current.cache_clear()
    found = [kernels.loadable(code) for code in small]
    assert len(manifest.kernels) == 2
    assert [x.cubin for x in found] == [x.cubin for x in compiled]
    assert all(x.ptx for x in compiled) and not any(x.ptx for x in found)


@pytest.mark.usefixtures("nothing")
@pytest.mark.slow
def test_a_kernel_without_line_information_is_the_same_code_and_names_no_folder():
    code = next(code for code in CODES if code[0] == "find_peaks")
    with_lines, without = (kernels.artifact(code, lines).cubin for lines in (True, False))
    assert with_lines and without and tools.sass(with_lines) == tools.sass(without)
    assert ROOT in with_lines and ROOT not in without


@pytest.mark.usefixtures("nothing")
@pytest.mark.slow
def test_a_kernel_that_does_not_compile_gives_its_error():
    wrong: list[Code] = [("find_peaks", None, (threads, 1, 1), SM90) for threads in (128, 256)]
    with pytest.raises(CompileError, match="find_peaks"):
        kernels.prepare(wrong)
    assert not kernels._loadable
