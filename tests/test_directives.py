"""Directives: parsing, evaluation, and errors."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmlab import problems
from gemmlab.compile.directive import parse
from gemmlab.errors import GemmlabError, InputError, UnknownNameError
from gemmlab.lab.directives import Directive, evaluate, read
from gemmlab.lab.directives.call import bind, layout_of, prepare, shape_of

GEMM = """\
// My SGEMM.
//! gemmlab problem=gemm entry=sgemm args=a,b,c,m,n,k layout=row,col,col
//! gemmlab block=16,16 grid=ceil_div(n, 128),ceil_div(m, 128)

__global__ void sgemm() {}
//! gemmlab entry=late
"""


def test_lines_at_the_top_are_one_directive():
    assert read(GEMM) == Directive(
        problem="gemm",
        entry="sgemm",
        args=("a", "b", "c", "m", "n", "k"),
        layout=("row", "col", "col"),
        block=("16", "16"),
        grid=("ceil_div(n, 128)", "ceil_div(m, 128)"),
    )


@pytest.mark.parametrize("text", ["", "__global__ void f() {}", "// gemmlab entry=f", "#include"])
def test_a_file_without_a_directive_gives_an_empty_one(text):
    assert read(text) == Directive()


def test_python_and_options():
    own = read("#! gemmlab entry=f n=10 block=64\nimport x")
    assert own.overridden(parse(["n=20", "m=3"])) == Directive(
        entry="f", block=("64",), sizes={"n": "20", "m": "3"}
    )


@pytest.mark.parametrize("word", ["smem=0", "output=nan", "precision=ieee", "block=1", "n=1"])
def test_options_replace_the_words_of_the_file(word):
    own = read("//! gemmlab smem=64 output=finite precision=fp16 block=8 n=5\n")
    name, value = word.split("=")
    words = own.overridden(parse([word]))
    assert (words.sizes[name] if name == "n" else "".join(getattr(words, name))) == value


def test_the_sizes_of_a_case_take_precedence():
    """The directive's sizes are for other uses, such as timing."""
    words = read("//! gemmlab args=a,b,c,m,n,k,tile m=64 n=m tile=m/2 grid=m,n block=tile\n")
    problem = problems.find("gemm")
    case = problem.case({"m": 6, "n": 5, "k": 4}, "row", "normal", 0)
    call = bind(words, problem, case, {"a": 0, "b": 0, "c": 0})
    assert (call.grid, call.block, call.args[3:]) == ((6, 5, 1), (3, 1, 1), (6, 5, 4, 3))
    assert shape_of(words, {"m": 1, "n": 1, "k": 9}) == {"m": 64, "n": 64, "k": 9}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("ceil_div(n,128)", 8),
        ("(n+127)/128*2", 16),
        ("-n + 3 % 2", -999),
        ("max(m, n, 5) << 1", 2000),
        ("min(m,n)", 3),
    ],
)
def test_expressions(text, value):
    assert evaluate(text, {"n": 1000, "m": 3}) == value


@given(st.integers(0, 10**6), st.integers(1, 10**4))
def test_ceil_div_is_the_ceiling(a, b):
    assert evaluate(f"ceil_div({a}, {b})", {}) == -(-a // b)


@given(st.text(alphabet="nm0123456789+-*/%<>()., cel_divax'\"[]=", max_size=30))
def test_arbitrary_text_raises_only_gemmlab_errors(text):
    with contextlib.suppress(GemmlabError):
        assert isinstance(evaluate(text, {"n": 5, "m": 0}), int)


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("n/0", InputError, "divides by zero"),
        ("n % (m - 3)", InputError, "divides by zero"),
        ("q + 1", UnknownNameError, r"unknown size 'q' in 'q \+ 1'; known sizes: n, m"),
        ("2 ** 99", InputError, "not an integer expression"),
        ("__import__('os')", InputError, "not an integer expression"),
        ("n.real", InputError, "not an integer expression"),
        ("True", InputError, "not an integer expression"),
        ("1 << 64", InputError, "shifts by 64"),
        ("9999999999 * 9999999999", InputError, "64 bits"),
        ("ceil_div(n)", InputError, "two arguments"),
        ("(" * 500, InputError, "not an integer expression|nested"),
    ],
)
def test_bad_expressions(text, error, words):
    with pytest.raises(error, match=words):
        evaluate(text, {"n": 1000, "m": 3})


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        ("blok=16", UnknownNameError, "unknown word 'blok' in a directive; did you mean 'block'"),
        ("block", InputError, "not of the form name=value"),
        ("block=", InputError, "not of the form name=value"),
        ("block=16 block=8", InputError, "block is given twice"),
        ("args=,", InputError, "args=, in a directive has no value"),
        ("grid=ceil_div(n,128", InputError, "brackets"),
    ],
)
def test_bad_directives(line, error, words):
    with pytest.raises(error, match=words):
        read(f"//! gemmlab {line}")


def test_a_call_has_arrays_numbers_and_sizes():
    text = "args=x:f32[n],y:i32[m*n]=arange,z:f64[2]=zeros,n,2.5,-1,m*n n=4 m=n/2 block=n grid=m,2"
    call = prepare(read(f"//! gemmlab {text} smem=n*4"))
    assert (call.grid, call.block, call.smem) == ((2, 2, 1), (4, 1, 1), 16)
    x, y, z, *numbers = call.args
    assert (x.dtype, x.shape, len(set(x.tolist()))) == (np.float32, (4,), 4)
    assert (y.dtype, y.tolist(), z.tolist()) == (np.int32, list(range(8)), [0.0, 0.0])
    assert numbers == [4, 2.5, -1, 8]
    assert call.names[:3] == ("x", "y", "z")
    again = prepare(read(f"//! gemmlab {text}"))
    np.testing.assert_array_equal(again.args[0], x)


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ("args=x:f33[4]", UnknownNameError, "unknown type 'f33'"),
        ("args=x:f32[4]=noise", UnknownNameError, "unknown fill 'noise'"),
        ("args=x:f32", InputError, "not of the form"),
        ("args=x:f32[-4]", InputError, "has -4 elements"),
        ("colour=7", UnknownNameError, "sets colour, but does not use it; valid words: problem"),
        ("args=n", UnknownNameError, "unknown size 'n'; known sizes: none"),
        ("grid=1,2,3,4", InputError, "one to three numbers"),
        ("grid=", InputError, "name=value"),
    ],
)
def test_bad_calls(words, error, message):
    with pytest.raises(error, match=message):
        prepare(read("//! gemmlab block=1 " + ("" if "grid" in words else "grid=1 ") + words))


def test_a_missing_grid_is_named():
    with pytest.raises(InputError, match="grid is missing"):
        prepare(read("//! gemmlab block=1"))


def gemm_call(words):
    directive, problem = read(f"//! gemmlab block=8,8 {words}"), problems.find("gemm")
    layout = layout_of(directive, problem)
    case = problem.case({"m": 5, "n": 6, "k": 7}, layout, "normal", seed=0)
    given = {name: name.upper() for name in "abc"} | dict(case.scalars)
    return layout, bind(directive, problem, case, given)


def test_arguments_of_a_problem_are_found_by_name():
    layout, call = gemm_call("args=k,1.0,a,b,0.5f,c,m*n grid=ceil_div(n,8),m layout=row,col,col")
    assert layout == "course"
    assert call.args == (7, 1.0, "A", "B", 0.5, "C", 30)
    assert (call.grid, call.block) == ((1, 5, 1), (8, 8, 1))
    assert gemm_call("grid=1")[1].args == ("A", "B", "C", 5, 6, 7, 7, 6, 6)


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ("grid=1 args=a,b,m", InputError, "does not include the output, c"),
        ("grid=1 args=a,x,c", UnknownNameError, "unknown size 'x'"),
        ("grid=1 layout=col,row,row", UnknownNameError, "no layout col,row,row"),
        ("grid=1 layout=course,row", UnknownNameError, "no layout course,row"),
    ],
)
def test_bad_bindings(words, error, message):
    with pytest.raises(error, match=message):
        gemm_call(words)


def test_arrays_that_memory_cannot_hold(monkeypatch):
    def fail(*_):
        raise MemoryError

    monkeypatch.setattr("gemmlab.lab.directives.call._filled", fail)
    with pytest.raises(InputError, match=r"'x:f32\[n\]' needs 400,000,000,000 bytes, .* memory"):
        prepare(read("//! gemmlab block=1 grid=1 args=x:f32[n] n=100*1000*1000*1000"))
