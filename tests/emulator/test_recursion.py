"""Recursive functions against the same functions in Python."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from snippets import ptx

from gemmlab.compile.nvrtc import compile_cuda
from gemmlab.emulator import run
from gemmlab.errors import EmulationError, UnsupportedInstructionError
from gemmlab.ptx import inline

CUDA = """
#define OWN __device__ __noinline__
OWN int ack(int m, int n) {
    return m == 0 ? n + 1 : n == 0 ? ack(m - 1, 1) : ack(m - 1, ack(m, n - 1));
}
extern "C" __global__ void numbers(int* y) {
    y[threadIdx.x] = ack(threadIdx.x % 3, threadIdx.x % 4);
}

OWN bool odd(int);
OWN bool even(int n) { return n == 0 || odd(n - 1); }
OWN bool odd(int n) { return n != 0 && even(n - 1); }
extern "C" __global__ void mutual(int* y) { y[threadIdx.x] = even(threadIdx.x); }

// A struct passed by value, a local array, and registers that are live across both calls.
struct Big { double a[3]; int b; };
OWN Big walk(Big v, int depth, int lane) {
    int own[8];
    for (int i = 0; i < 8; i++) own[i] = depth * 10 + i;
    if (depth == 0) { v.b += own[lane & 7]; return v; }
    Big r = walk(v, depth - 1, lane), s = walk(r, depth / 2, lane);
    s.a[depth % 3] += own[(lane + depth) & 7];
    s.b += own[3];
    return s;
}
extern "C" __global__ void structs(double* y) {
    Big v{};
    v.b = threadIdx.x;
    Big r = walk(v, threadIdx.x % 5, threadIdx.x);
    y[threadIdx.x] = r.b + r.a[0] + 2 * r.a[1] + 3 * r.a[2];
}

// Calls through function pointers, which diverge the warp, with a shuffle in between.
struct Node { __device__ virtual float f(float x) const = 0; };
struct Leaf : Node {
    float k;
    __device__ Leaf(float k) : k(k) {}
    __device__ float f(float x) const override { return k * x; }
};
struct Sum : Node {
    const Node *a, *b;
    __device__ Sum(const Node* a, const Node* b) : a(a), b(b) {}
    __device__ float f(float x) const override { return a->f(x) + b->f(x + 1); }
};
OWN int meet(int n) {
    return n == 0 ? 0 : __shfl_xor_sync(~0u, (int)threadIdx.x + n, 1) + meet(n - 1);
}
extern "C" __global__ void trees(float* y) {
    Leaf l(2), m(3);
    Sum s(&l, &m), t(&s, &l), u(&t, &s);
    const Node* n = threadIdx.x % 3 == 0 ? (const Node*)&l : threadIdx.x % 3 == 1 ? &t : &u;
    y[threadIdx.x] = n->f(threadIdx.x) + 1000 * meet(4);
}
"""


@cache
def text() -> str:
    return compile_cuda(CUDA, "numbers").ptx


def ack(m: int, n: int) -> int:
    return n + 1 if m == 0 else ack(m - 1, 1) if n == 0 else ack(m - 1, ack(m, n - 1))


def walk(v: tuple[list[float], int], depth: int, lane: int) -> tuple[list[float], int]:
    own = [depth * 10 + i for i in range(8)]
    if depth == 0:
        return v[0], v[1] + own[lane & 7]
    a, b = walk(walk(v, depth - 1, lane), depth // 2, lane)
    a = [x + own[(lane + depth) & 7] * (k == depth % 3) for k, x in enumerate(a)]
    return a, b + own[3]


def structs(lane: int) -> float:
    (x, y, z), b = walk(([0.0] * 3, lane), lane % 5, lane)
    return b + x + 2 * y + 3 * z


def trees(lane: int) -> float:
    def s(x: float) -> float:
        return 2 * x + 3 * (x + 1)

    def t(x: float) -> float:
        return s(x) + 2 * (x + 1)

    found = [2 * lane, t(lane), t(lane) + s(lane + 1)][lane % 3]
    return found + 1000 * sum((lane ^ 1) + n for n in range(1, 5))


@pytest.mark.parametrize(
    ("entry", "dtype", "reference", "tier"),
    [
        ("numbers", np.int32, lambda t: ack(t % 3, t % 4), "numpy"),
        ("mutual", np.int32, lambda t: t % 2 == 0, "numpy"),
        ("structs", np.float64, structs, "numpy"),
        ("structs", np.float64, structs, "native"),
        ("trees", np.float32, trees, "numpy"),
        ("trees", np.float32, trees, "native"),
    ],
)
@pytest.mark.slow
def test_results(entry, dtype, reference, tier):
    y = np.zeros(32, dtype)
    run(text(), entry, (1, 1, 1), (32, 1, 1), [y], tier=tier)
    assert y.tolist() == [reference(t) for t in range(32)]


def test_both_tiers_count_the_same():
    counters = []
    for tier in ("numpy", "native"):
        y = np.zeros(64)
        counters.append(run(text(), "structs", (1, 1, 1), (64, 1, 1), [y], tier=tier).counters)
    assert counters[0] == counters[1]


COUNTDOWN = """
.func (.param .b32 r) f(.param .b32 n) {{ .reg .b32 %r<4>; .reg .pred %p<3>;
ld.param.u32 %r1, [n]; setp.eq.u32 %p1, %r1, 0; setp.ne.u32 %p2, %r1, %r1;
@%p1 st.param.b32 [r], {base}; @%p1 ret; sub.u32 %r2, %r1, 1;
{{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r2; call.uni (b), f, (a);
ld.param.b32 %r3, [b]; }} add.u32 %r3, %r3, %r1; st.param.b32 [r], %r3; }}
"""
CALL = (
    "ld.param.u64 %q0, [p0]; ld.param.u32 %r1, [p1]; mov.u32 %r0, %tid.x; add.u32 %r1, %r1, %r0;"
    "{{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; st.param.b32 [b], %r0;"
    "setp.ge.u32 %p1, %r0, 2; {guard}call.uni (b), f, (a); ld.param.b32 %r2, [b]; }}"
    "mad.wide.u32 %q0, %r0, 4, %q0; st.global.u32 [%q0], %r2; ret;"
)


@pytest.mark.parametrize("guard", ["", "@%p1 "])
def test_guarded_returns_and_calls(guard):
    """A function without a final `ret`, called by some of the lanes."""
    y = np.zeros(8, np.uint32)
    code = ptx(CALL.format(guard=guard), ["u64", "u32"], COUNTDOWN.format(base=5))
    run(code, "k", (1, 1, 1), (8, 1, 1), [y, 3])
    sums = [5 + sum(range(t + 4)) for t in range(8)]
    assert y.tolist() == ([0, 1, *sums[2:]] if guard else sums)


@pytest.mark.parametrize("tier", ["numpy", "native"])
def test_the_stack_has_an_end(tier):
    code = ptx(CALL.format(guard=""), ["u64", "u32"], COUNTDOWN.format(base=0))
    with pytest.raises(EmulationError, match="recursion is deeper than a thread's stack"):
        run(code, "k", (1, 1, 1), (8, 1, 1), [np.zeros(8, np.uint32), 1 << 20], tier=tier)


def test_calls_that_grow_too_large_are_refused(monkeypatch):
    monkeypatch.setattr(inline, "MAX_INSTRUCTIONS", 1000)
    functions = [".func f0() { .reg .b32 %x; mov.u32 %x, 1; ret; }"]
    functions += [f".func f{k}() {{ call f{k - 1}; call f{k - 1}; ret; }}" for k in range(1, 25)]
    with pytest.raises(UnsupportedInstructionError, match="more than 1,000 instructions"):
        run(ptx("call f24; ret;", module="\n".join(functions)), "k", (1, 1, 1), (32, 1, 1), [])
