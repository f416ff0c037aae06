"""Small kernels with adjacent accesses, and how machine code and the emulator join them.

A kernel is written as words. "4s8" stores four bytes at offset 8 and "4l8" loads them; "2x4s8" is a
vector of two; "b4s8" uses another base register, and "z4s8" one that the kernel computes. Other
words are names of instructions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from gemmlab.cubin import tools
from gemmlab.cubin.code import read
from gemmlab.emulator.translation.translate import translate

ARCH = "sm_90a"
ACCESS = re.compile(r"([b-ez]?)(?:(\d)x)?(\d)([sl])(\d+)$")  # base, elements, bytes, what, offset
# Registers that hold addresses, with the strongest alignment that can be proved.
BASES = """
.reg .b32 %a, %b, %c, %d, %e, %start, %x;
mov.u32 %x, %tid.x; mov.u32 %start, memory;
.reg .b32 %t<9>;
shl.b32 %t0, %x, 4; add.u32 %a, %t0, %start;
and.b32 %t1, %x, 32; mad.lo.u32 %b, %t1, 16, %start;
add.u32 %c, %a, 1032;
shl.b32 %t2, %x, 3; add.u32 %d, %t2, %start;
mul.lo.u32 %t3, %x, 12; add.u32 %e, %t3, %start;
"""
OTHERS = {
    "barrier": "bar.sync 0;",
    "warp": "bar.warp.sync -1;",
    "fence": "fence.acq_rel.cta;",
    "global-store": "st.global.u32 [%g+2048], 1;",
    "global-load": "ld.global.u32 %r{n}, [%g]; st.global.u32 [%g], %r{n};",
    "global-red": "red.global.add.u32 [%g+2048], 1;",
    "shared-red": "red.shared.add.u32 [%start], 1;",
    "generic-store": "st.u32 [%g+2048], 1;",
    "volatile-load": "ld.volatile.shared.u32 %r{n}, [%start]; st.global.u32 [%g], %r{n};",
    "volatile-store": "st.volatile.shared.u32 [%start], 1;",
    "copy": "cp.async.ca.shared.global [%start+8192], [%g], 4;",
    "guarded-store": "@%p st.shared.u32 [%start], 1;",
    "matrix": "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r{n}}}, [%start];"
    "st.global.u32 [%g], %r{n};",
}
SPACES = {"S": "shared", "G": "global", "L": "local", "": "generic"}
KINDS = {"ld": "load", "st": "store"}
TYPES = {1: ("u8", "h"), 2: ("b16", "h"), 4: ("b32", "r"), 8: ("b64", "q")}  # and registers


def kernel(name: str, words: str, space: str = "shared", address: str = "") -> str:
    """Return PTX that does what the words say and finally stores what it loaded to global memory.

    address: instructions that compute %z0 from the unknown numbers %y0 and %y1, for the base "z";
    they may use %z0 to %z9 and %w0 to %w9 of 64 bits, %v0 to %v9 of 16 bits and the float32 %f0.
    """
    given, body, uses = list[str](), list[str](), list[str]()
    for n, word in enumerate(words.split()):
        found = ACCESS.match(word)
        if not found:
            body.append(OTHERS[word].format(n=8 * n))
            continue
        base, count, width, what, offset = found.groups()
        type_, letter = TYPES[int(width)]
        items = [f"%{letter}{8 * n + k}" for k in range(int(count or 1))]
        globals_ = [(x, f"[%g+{4096 + 16 * (8 * n + k)}]") for k, x in enumerate(items)]
        vector = f".v{count}" if count else ""
        registers = f"{{{', '.join(items)}}}" if count else items[0]
        place = f"[%{base or 'a'}+{offset}]"
        if what == "l":
            body.append(f"ld.{space}{vector}.{type_} {registers}, {place};")
            uses += [f"st.volatile.global.{type_} {at}, {x};" for x, at in globals_]
        else:
            given += [f"ld.volatile.global.{type_} {x}, {at};" for x, at in globals_]
            body.append(f"st.{space}{vector}.{type_} {place}, {registers};")
    memory = f".{space} .align 16 .b8 memory[16384];"
    return "\n".join(
        [
            f".visible .entry {name}(.param .u64 p)\n{{",
            f".reg .b64 %g; .reg .pred %p; {memory}",
            ".reg .b16 %h<600>; .reg .b32 %r<600>; .reg .b64 %q<600>;",
            f"{BASES} ld.param.u64 %g, [p]; cvta.to.global.u64 %g, %g; setp.lt.u32 %p, %x, 7;",
            ".reg .b32 %y<2>, %z, %z<10>; .reg .b64 %w<10>; .reg .b16 %v<10>; .reg .f32 %f<1>;",
            "ld.volatile.global.u32 %y0, [%g]; ld.volatile.global.u32 %y1, [%g+4];",
            f"{address} add.u32 %z, %z0, %start;" if address else "",
            *given,
            *body,
            *uses,
            f"bar.sync 0; .reg .b32 %u<9>; xor.b32 %u0, %a, 1024; ld.{space}.u32 %u1, [%u0];",
            "st.volatile.global.u32 [%g], %u1;\nret;\n}",
        ]
    )


def module(kernels: Iterable[str]) -> str:
    return "\n".join([f".version 8.0\n.target {ARCH}\n.address_size 64", *kernels, ""])


def of_machine_code(cubin: bytes) -> dict[str, Counter[str]]:
    """Return, per kernel, the numbers of loads and stores of each width: "shared load 16"."""
    _, *parts = re.split(r"\n\s*\.section\s+\.text\.(\w+),", tools.sass(cubin))
    found: dict[str, Counter[str]] = {}
    for name, part in zip(parts[::2], parts[1::2], strict=True):
        found[name] = Counter[str]()
        for one in read(part).instructions:
            access = re.fullmatch(r"(LD|ST)([SGL]?)", one.root)
            if access and one.guard != "!PT":
                kind = KINDS[access[1].lower()]
                found[name][f"{SPACES[access[2]]} {kind} {one.width}"] += 1
    return found


def of_emulator(ptx: str, entry: str) -> Counter[str]:
    """Return the same for one kernel on the emulator."""
    program = translate(ptx, entry)
    found = Counter[str]()
    for index, access in program.accesses.items():
        one = program.function.instructions[index]
        words = [word.partition("::")[0] for word in one.modifiers]
        if one.root in KINDS and not {"param", "const"} & {*words}:
            space = next((word for word in words if word in SPACES.values()), "generic")
            found[f"{space} {KINDS[one.root]} {access.width}"] += 1
    return found
