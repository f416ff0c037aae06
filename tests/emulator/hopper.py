"""PTX kernels around one instruction of Hopper's copy engine or tensor cores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from snippets import HEADER, REGISTERS

from gemmlab import TensorMap

VERSION = HEADER.replace(".version 8.0", ".version 8.6")
STALE = 0xDEADBEEF  # contents of shared memory before a copy
SPANS = {"none": 0, "32B": 32, "64B": 64, "128B": 128}


@dataclass
class Kernel:
    """A kernel of one block and its arguments. `results`: the arrays that it writes."""

    text: str
    args: list[Any]
    results: list[np.ndarray]
    threads: int = 32
    dynamic_smem: int = 0
    grid: tuple[int, int, int] = (1, 1, 1)


def module(parameters: Sequence[str], body: str, declared: str = "") -> str:
    """Return a module with one entry `k`. A parameter "map" is a tensor map; the others have PTX
    types."""
    listed = ", ".join(
        f".param .align 64 .b8 p{i}[128]" if type_ == "map" else f".param .{type_} p{i}"
        for i, type_ in enumerate(parameters)
    )
    loads = [
        f"mov.u64 %q{i}, p{i}; cvta.param.u64 %q{i}, %q{i};"
        if type_ == "map"
        else f"ld.param.{type_} %q{i}, [p{i}];"
        for i, type_ in enumerate(parameters)
    ]
    code = "\n".join([REGISTERS, *loads, "mov.u32 %r0, %tid.x;", body, "ret;"])
    return f"{VERSION}{declared}\n.visible .entry k({listed})\n{{\n{code}\n}}\n"


def each_word(nbytes: int, threads: int, body: str, label: str) -> str:
    """Run `body` for each 32-bit word of dynamic shared memory. %r3 is its address, %q8 four times
    its index."""
    return (
        f"mov.u32 %r2, %r0; {label}: setp.ge.u32 %p3, %r2, {nbytes // 4}; @%p3 bra {label}_END;"
        f"mov.u32 %r3, s; mad.lo.u32 %r3, %r2, 4, %r3; mul.wide.u32 %q8, %r2, 4; {body}"
        f"add.u32 %r2, %r2, {threads}; bra {label}; {label}_END:"
    )


DYNAMIC = ".extern .shared .align 1024 .b8 s[];"
WAIT = "WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [m], 0; @!%p2 bra WAIT;"


def registers(values: Sequence[int]) -> tuple[str, str]:
    """Return code that loads %r10, … and the list of these registers."""
    names = [f"%r{10 + k}" for k in range(len(values))]
    loads = " ".join(f"mov.b32 {n}, {v};" for n, v in zip(names, values, strict=True))
    return loads, ", ".join(names)


def box_bytes(tensor_map: TensorMap) -> int:
    counts = zip(tensor_map.box, tensor_map.element_strides, strict=True)
    return math.prod(-(-n // s) for n, s in counts) * tensor_map.itemsize


def image_bytes(tensor_map: TensorMap) -> int:
    """Return the size of a box in shared memory, rounded up to 128 bytes."""
    row = tensor_map.box[-1] * tensor_map.itemsize
    pitch = SPANS[tensor_map.swizzle] or row
    return -(-box_bytes(tensor_map) // row * pitch // 128) * 128


def box_load(tensor_map: TensorMap, coordinates: Sequence[int], offset: int = 0) -> Kernel:
    """Copy a box to `offset` in shared memory. The result is the image of all shared memory."""
    rank, nbytes = len(tensor_map.shape), box_bytes(tensor_map)
    smem = offset + image_bytes(tensor_map)
    loads, names = registers(coordinates)
    store_word = "add.u64 %q9, %q1, %q8; ld.shared.u32 %r4, [%r3]; st.global.u32 [%q9], %r4;"
    body = "\n".join(
        [
            each_word(smem, 32, f"st.shared.u32 [%r3], {STALE:#x};", "CLEAR"),
            "setp.ne.u32 %p1, %r0, 0; @%p1 bra READY; mbarrier.init.shared.b64 [m], 1;",
            "READY: fence.proxy.async.shared::cta; bar.sync 0; @%p1 bra WAIT;",
            f"{loads} mov.u32 %r3, s; add.u32 %r3, %r3, {offset};",
            f"mbarrier.arrive.expect_tx.shared.b64 _, [m], {nbytes};",
            f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile"
            f".mbarrier::complete_tx::bytes [%r3], [%q0, {{{names}}}], [m];",
            WAIT,
            each_word(smem, 32, store_word, "STORE"),
        ]
    )
    image = np.zeros(smem // 4, np.uint32)
    text = module(["map", "u64"], body, ".shared .align 8 .b64 m;" + DYNAMIC)
    return Kernel(text, [tensor_map, image], [image], dynamic_smem=smem)


def box_store(
    tensor_map: TensorMap, image: np.ndarray, coordinates: Sequence[int], operation: str = ""
) -> Kernel:
    """Copy or reduce a box from shared memory, which holds `image`, to the map's array."""
    rank = len(tensor_map.shape)
    loads, names = registers(coordinates)
    load_word = "add.u64 %q9, %q1, %q8; ld.global.u32 %r4, [%q9]; st.shared.u32 [%r3], %r4;"
    what = f"cp.reduce.async.bulk.tensor.{rank}d" if operation else f"cp.async.bulk.tensor.{rank}d"
    how = f".global.shared::cta{'.' + operation if operation else ''}.tile.bulk_group"
    body = "\n".join(
        [
            each_word(image.nbytes, 32, load_word, "LOAD"),
            "fence.proxy.async.shared::cta; bar.sync 0;",
            f"setp.ne.u32 %p1, %r0, 0; @%p1 bra OUT; {loads} mov.u32 %r3, s;",
            f"{what}{how} [%q0, {{{names}}}], [%r3];",
            "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; OUT:",
        ]
    )
    text = module(["map", "u64"], body, DYNAMIC)
    array = tensor_map.array
    return Kernel(text, [tensor_map, image], [array], dynamic_smem=image.nbytes)


REGISTER_TYPES = {"f32": "f32", "s32": "b32", "f16": "b32"}
FRAGMENT_BYTES = 4 * 128  # one 32-bit register of each thread of a warpgroup


def descriptor(start: int, leading: int, stride: int, swizzle: str = "none", base: int = 0) -> int:
    """Return a matrix descriptor. Offsets are in bytes; `start` is relative to the image."""
    mode = ["none", "128B", "64B", "32B"].index(swizzle)
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | base << 49 | mode << 62


@dataclass(frozen=True)
class Mma:
    """One wgmma instruction, executed `steps` times with advancing descriptors."""

    n: int
    types: tuple[str, str, str]  # result, a, b
    a: int | np.ndarray  # a descriptor, or (steps, 4, 128) registers
    b: int
    steps: int = 1
    step_a: int = 0  # bytes
    step_b: int = 0
    flags: str = "1, 1, 0, 0"  # immediate operands
    satfinite: str = ""

    @property
    def num_registers(self) -> int:
        return self.n // (4 if self.types[0] == "f16" else 2)


def warpgroup(mma: Mma, image: np.ndarray, accumulators: np.ndarray | None = None) -> Kernel:
    """Return a kernel that computes D = A·B (+ accumulators) with one warpgroup; its result is D as
    (registers, 128) words."""
    result, a_type, _ = mma.types
    k = 32 // {"f16": 2, "bf16": 2, "tf32": 4}.get(a_type, 1)
    count, type_ = mma.num_registers, REGISTER_TYPES[result]
    names = ", ".join(f"%d{i}" for i in range(count))
    in_registers = isinstance(mma.a, np.ndarray)
    fragment = mma.a if in_registers else np.zeros((1, 4, 128), np.uint32)
    load_a = "".join(
        f"ld.global.b32 %a{i}, [%q4+{FRAGMENT_BYTES * i}];" for i in range(4) if in_registers
    )
    left = "{%a0, %a1, %a2, %a3}" if in_registers else "%q5"
    flags = f", {mma.flags}" if mma.flags else ""
    load_word = "add.u64 %q9, %q0, %q8; ld.global.u32 %r4, [%q9]; st.shared.u32 [%r3], %r4;"
    each = [f"[%q{{}}+{FRAGMENT_BYTES * i}]" for i in range(count)]
    body = "\n".join(
        [
            f".reg .{type_} %d<{count}>; .reg .b32 %a<4>;",
            each_word(image.nbytes, 128, load_word, "LOAD"),
            "fence.proxy.async.shared::cta; bar.sync 0;",
            "mov.u32 %r5, s; shr.u32 %r5, %r5, 4; cvt.u64.u32 %q9, %r5;",
            "add.u64 %q5, %q5, %q9; add.u64 %q6, %q6, %q9; mul.wide.u32 %q8, %r0, 4;",
            "add.u64 %q1, %q1, %q8; add.u64 %q2, %q2, %q8; add.u64 %q4, %q4, %q8;",
            *(f"ld.global.{type_} %d{i}, {x.format(2)};" for i, x in enumerate(each)),
            "setp.ne.u64 %p1, %q3, 0; mov.u32 %r6, 0;",
            f"STEP: {load_a} wgmma.fence.sync.aligned;",
            f"wgmma.mma_async.sync.aligned.m64n{mma.n}k{k}{mma.satfinite}.{'.'.join(mma.types)}",
            f"{{{names}}}, {left}, %q6, %p1{flags};",
            "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
            f"setp.eq.u32 %p1, 0, 0; add.u64 %q5, %q5, {mma.step_a >> 4};",
            f"add.u64 %q6, %q6, {mma.step_b >> 4}; add.u64 %q4, %q4, {4 * FRAGMENT_BYTES};",
            f"add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, {mma.steps}; @%p2 bra STEP;",
            *(f"st.global.{type_} {x.format(1)}, %d{i};" for i, x in enumerate(each)),
        ]
    )
    before = np.zeros((count, 128), np.uint32) if accumulators is None else accumulators
    out = np.zeros((count, 128), np.uint32)
    args = [image, out, before.view(np.uint32), np.uint64(accumulators is not None), fragment]
    args += [np.uint64(0 if in_registers else mma.a), np.uint64(mma.b)]
    text = module(["u64"] * 7, body, DYNAMIC)
    return Kernel(text, args, [out], threads=128, dynamic_smem=image.nbytes)


def rows_of(fragments: np.ndarray, n: int) -> np.ndarray:
    """Convert (registers, 128) words of 32-bit accumulators to a (64, n) matrix."""
    # columns / 8, row half, register of a pair, warp, g, t
    parts = fragments.reshape(n // 8, 2, 2, 4, 8, 4)
    return parts.transpose(3, 1, 4, 0, 5, 2).reshape(64, n)
