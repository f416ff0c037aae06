"""Instructions that the native tier leaves to the NumPy tier."""

from __future__ import annotations

import gc
import itertools
from typing import Any

import numpy as np
import pytest
from forms import FORMS, Form
from machine import needs_native
from snippets import ptx

from gemmlab.emulator import run, tiers
from gemmlab.emulator.native import launch as native_launch
from gemmlab.emulator.translation.translate import translate
from gemmlab.errors import BudgetError, EmulationError, OutOfBoundsError, TierError

pytestmark = needs_native


# Accesses to other blocks of a cluster run on NumPy.
REFUSED = ("barrier.cluster", "ld.acquire.cluster", "st.relaxed.cluster", "st.async", "red.async")
KEPT = [f"%{kind}{k}" for kind, k in itertools.product("rqfgh", range(1, 8))]


def program(form: Form) -> str:
    """Return a program that initializes every register and stores it at the end."""
    body = [".shared .align 128 .b8 s[4096]; .reg .b64 %out; mov.u32 %r0, %tid.x;"]
    body.append("ld.param.u64 %out, [p0]; ld.param.u64 %q0, [p1]; cvt.u64.u32 %q9, %r0;")
    body.append(f"mul.lo.u64 %q9, %q9, {8 * len(KEPT)}; add.u64 %out, %out, %q9;")
    for k in range(1, 32):
        body.append(f"mov.u32 %r{k}, {16 * k}; add.u64 %q{k}, %q0, {16 * k};")
    for k in range(1, 8):
        body.append(f"cvt.u16.u32 %h{k}, %r{k}; cvt.rn.f32.u32 %f{k}, %r{k};")
        body.append(f"cvt.rn.f64.u32 %g{k}, %r{k}; setp.lt.u32 %p{k}, %r0, {9 * k};")
    body.append(form.text(form.words))
    for k, name in enumerate(KEPT):
        width = {"r": "b32", "q": "b64", "f": "f32", "g": "f64", "h": "b16"}[name[1]]
        body.append(f"st.global.{width} [%out+{8 * k}], {name};")
    return ptx("\n".join([*body, "ret;"]), ["u64"] * 2)


def outcome(text: str, tier: str) -> Any:
    out, data = np.zeros((32, len(KEPT)), np.uint64), np.arange(4096, dtype=np.uint32)
    try:
        found = run(text, "k", (1, 1, 1), (32, 1, 1), [out, data], tier=tier)
    except EmulationError as error:
        return type(error), str(error).split(" (and ")[0].split(", block")[0]
    return out.tobytes(), data.tobytes(), found.counters


@pytest.mark.parametrize("form", FORMS, ids=lambda form: ".".join(form.opcode))
@pytest.mark.slow
def test_every_form(form: Form) -> None:
    text = program(form)
    try:
        found = outcome(text, "native")
    except TierError as refusal:
        assert f"does not cover {'.'.join(form.opcode)}" in str(refusal)  # noqa: PT017
        assert ".".join(form.opcode).startswith(REFUSED)
        return
    assert found == outcome(text, "numpy")


# float64 sums rounded down are such an instruction.
SUMS = """ld.param.u64 %q0, [p0]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;
    mad.lo.u32 %r4, %r2, %r3, %r1; mad.wide.u32 %q1, %r4, 8, %q0; setp.lt.u32 %p1, %r1, 37;
    cvt.rn.f64.u32 %g1, %r4; mov.f64 %g2, 0d3FB999999999999A; mov.f64 %g4, %g2; BODY
    st.global.f64 [%q1], %g2; ret;"""
BODIES = {
    "plain": "add.rm.f64 %g2, %g1, %g2;",
    "of constants": "add.rm.f64 %g2, %g4, %g4;",
    "guarded": "@%p1 add.rm.f64 %g2, %g1, %g2; @!%p1 mul.rp.f64 %g2, %g1, %g2;",
    "parted": "@%p1 bra NEXT; add.rm.f64 %g2, %g1, %g2; NEXT: add.rp.f64 %g2, %g2, %g1;",
    "again": "mov.u32 %r5, 0; AGAIN: add.rz.f64 %g2, %g2, %g4; add.u32 %r5, %r5, 1;"
    "setp.lt.u32 %p2, %r5, 6; @%p2 bra AGAIN;",
}


@pytest.mark.parametrize("threads", [96, 70])
@pytest.mark.parametrize("body", BODIES)
def test_one_instruction_of_a_kernel(
    body: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gemmlab.emulator.native import launch

    monkeypatch.setattr(launch, "host_threads", lambda: 3)
    text = ptx(SUMS.replace("BODY", BODIES[body]), ["u64"])
    found = []
    for tier in ("numpy", "native"):
        x = np.zeros(5 * threads)
        result = run(text, "k", (5, 1, 1), (threads, 1, 1), [x], tier=tier)
        found.append((x.tobytes(), result.counters))
    assert found[0] == found[1]


PRINT = """
.extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);
.global .align 1 .b8 text[4] = {37, 117, 10, 0};
"""


def test_lines_are_printed_in_the_order_of_threads(capsys: pytest.CaptureFixture[str]) -> None:
    body = """.local .align 8 .b8 m[8]; mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 60;
        @%p1 bra OUT; mov.u64 %q1, m; st.local.u32 [%q1], %r1; cvta.local.u64 %q1, %q1;
        mov.u64 %q2, text; cvta.global.u64 %q2, %q2;
        { .param .b64 a; .param .b64 b; .param .b32 r; st.param.b64 [a], %q2;
        st.param.b64 [b], %q1; call.uni (r), vprintf, (a, b); } OUT: ret;"""
    for tier in ("numpy", "native"):
        run(ptx(body, module=PRINT), "k", (1, 1, 1), (70, 1, 1), [], tier=tier)
        assert capsys.readouterr().out.split() == [str(k) for k in range(60, 70)]


def test_a_launch_that_changes_over_prints_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the other tier cannot take over."""
    body = """.local .align 8 .b8 m[8]; mov.u32 %r1, 0; LOOP: mov.u64 %q1, m;
        st.local.u32 [%q1], %r1; cvta.local.u64 %q1, %q1; mov.u64 %q2, text;
        cvta.global.u64 %q2, %q2;
        { .param .b64 a; .param .b64 b; .param .b32 r; st.param.b64 [a], %q2;
        st.param.b64 [b], %q1; call.uni (r), vprintf, (a, b); }
        add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 30; @%p1 bra LOOP; ret;"""
    monkeypatch.setattr(tiers, "WORTH_COMPILING", 100)
    used = set()
    for covers in (False, True):
        if not covers:
            monkeypatch.setattr(tiers, "_covers", lambda _: False)
            monkeypatch.setattr(tiers, "is_compiled", lambda _: False)
        tiers._executed.clear()
        used.add(run(ptx(body, module=PRINT), "k", (1, 1, 1), (1, 1, 1), []).tier)
        assert capsys.readouterr().out.split() == [str(k) for k in range(30)]
        monkeypatch.undo()
        monkeypatch.setattr(tiers, "WORTH_COMPILING", 100)
    assert used == {"numpy", "native"}


def test_a_fault_names_block_and_thread() -> None:
    body = """.shared .align 8 .b8 s[8]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x;
        setp.eq.u32 %p1, %r1, 2; setp.eq.u32 %p2, %r2, 40; mov.u32 %r3, 0; @%p1 mov.u32 %r3, 64;
        mbarrier.init.shared.b64 [s], 40; bar.sync 0;
        @%p2 mbarrier.arrive.shared.b64 %q1, [%r3]; ret;"""
    caught = []
    for tier in ("numpy", "native"):
        with pytest.raises(OutOfBoundsError) as error:
            run(ptx(body), "k", (4, 1, 1), (64, 1, 1), [], tier=tier)
        e = error.value
        caught.append((e.block, e.thread, e.address, e.site, str(e)))
    assert caught[0] == caught[1]
    assert caught[0][:2] == ((2, 0, 0), 40)


def test_a_bug_in_such_an_instruction_comes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmlab.emulator.arithmetic import doubles

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(doubles, "directed64", fail)
    text = ptx(SUMS.replace("BODY", BODIES["plain"]), ["u64"])
    with pytest.raises(KeyboardInterrupt):
        run(text, "k", (2, 1, 1), (32, 1, 1), [np.zeros(64)], tier="native")


def test_code_from_disk_knows_its_fallbacks() -> None:
    from gemmlab.emulator.native import code

    text = ptx(SUMS.replace("BODY", BODIES["guarded"]), ["u64"])
    for _ in range(2):
        translate(text).native.clear()
        x = np.zeros(32)
        run(text, "k", (1, 1, 1), (32, 1, 1), [x], tier="native")
        made = code.code_of(translate(text), True)
        assert len(made.metadata.fallbacks) == 2 and x.all()


def test_registers_of_clusters_of_one_block() -> None:
    names = ["cluster_ctarank", "cluster_nctarank"]
    names += [
        f"{name}.{axis}"
        for name in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
        for axis in "xyz"
    ]
    body = "ld.param.u64 %q0, [p0]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y;"
    body += f"mad.lo.u32 %r1, %r2, 3, %r1; mad.wide.u32 %q0, %r1, {4 * len(names) + 4}, %q0;"
    for k, name in enumerate(names):
        body += f"mov.u32 %r3, %{name}; st.global.u32 [%q0+{4 * k}], %r3;"
    body += "mov.pred %p1, %is_explicit_cluster; selp.u32 %r3, 1, 0, %p1;"
    text = ptx(f"{body} st.global.u32 [%q0+{4 * len(names)}], %r3; ret;", ["u64"])
    found = []
    for tier in ("numpy", "native"):
        x = np.full((6, len(names) + 1), 9, np.uint32)
        run(text, "k", (3, 2, 1), (1, 1, 1), [x], tier=tier)
        found.append(x.tolist())
    assert found[0] == found[1]


@pytest.mark.slow
def test_a_launch_frees_its_memory_at_once() -> None:
    """Freeing does not depend on the garbage collector, which may run gigabytes later."""
    text = ptx("ld.param.u64 %q0, [p0]; st.global.u32 [%q0], 7; ret;", ["u64"])
    x = np.zeros(1 << 20, np.uint32)
    run(text, "k", (1, 1, 1), (32, 1, 1), [x], tier="native")
    gc.collect()
    gc.disable()
    try:
        run(text, "k", (1, 1, 1), (32, 1, 1), [x], tier="native")
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = {type(thing).__name__ for thing in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not left & {"Core", "Launch", "GlobalMemory"}


def test_a_loop_that_prints_forever_is_named_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that print run in turn, but do not wait for each other."""
    body = """.local .align 8 .b8 m[8]; mov.u32 %r1, 0; LOOP: mov.u64 %q1, m;
        st.local.u32 [%q1], %r1; cvta.local.u64 %q1, %q1; mov.u64 %q2, text;
        cvta.global.u64 %q2, %q2;
        { .param .b64 a; .param .b64 b; .param .b32 r; st.param.b64 [a], %q2;
        st.param.b64 [b], %q1; call.uni (r), vprintf, (a, b); }
        add.u32 %r1, %r1, 1; bra LOOP;"""
    monkeypatch.setattr(native_launch, "PATIENCE_SECONDS", 0.2)
    with pytest.raises(BudgetError, match="no block has ended"):
        run(ptx(body, module=PRINT), "k", (64, 1, 1), (32, 1, 1), [], tier="native")
