"""Kernels that measure latencies and rates of a GPU: the sources of parameters that are `measured`.

A case repeats an instruction in an unrolled loop between two readings of the clock. If each needs
the result of the previous one, in one warp, the quotient is the latency; if several chains are
independent, in enough warps, it is the time for which the unit is occupied. Bodies differ by their
position `{i}`, as the assembler would merge equal loads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

UNROLL = 16
SHARED_BYTES = 32768
MB = 1 << 20
LINES = 37  # lines between two links of a chain through memory
MANY = (1, 4, 8, 16, 32)  # warps
_SAME = "a += one - 1;"  # the compiler cannot know that the address is that of the last turn
_BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
_PLACE = re.compile(r"\{i(?:\*(\d+))?\}")  # the position of a body, times a number

_KERNEL = """
typedef unsigned u32;
typedef unsigned long long u64;
__constant__ u32 table[1024];
__device__ __forceinline__ u32 at(const void* p) {{ return (u32)__cvta_generic_to_shared(p); }}
__device__ __forceinline__ u64 now() {{
  u64 t;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(t)::"memory");
  return t;
}}
extern "C" __global__ void __launch_bounds__({threads})
measured(u32* data, u32* out, u64* cycles, int n, u32 one, u32 first) {{
  __shared__ __align__(1024) u32 shared[8192];
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int i = threadIdx.x; i < 8192; i += blockDim.x) shared[i] = {fill};
  __syncthreads();
  {setup}
  for (int turn = 0; turn < 2; turn++) {{  // the first fills caches
    __syncthreads();
    const u64 start = now();
    for (int i = 0; i < n; i++) {{
      {begin}
      {body}
    }}
    {close}
    const u64 end = now();
    if (lane == 0) {{
      u64* to = cycles + 2 * (blockIdx.x * (blockDim.x / 32) + warp);
      to[0] = start;
      to[1] = end;
    }}
  }}
  out[blockIdx.x * blockDim.x + threadIdx.x] = {sink};
}}
"""


@dataclass(frozen=True)
class Case:
    """One kernel. per: instructions in a body. begin: before the bodies
    of a turn. turns: of the loop. chain: bytes of device memory
    that it walks through, by links of LINES lines. body: with `{i}` or `{i*4}` for its position."""

    name: str
    body: str
    setup: str = "u32 x0 = lane;"
    sink: str = "x0"
    fill: str = "0"
    begin: str = ""
    close: str = ""
    warps: tuple[int, ...] = (1,)
    turns: int = 8
    per: int = 1
    chain: int = 0
    blocks: int = 1

    @property
    def is_burst(self) -> bool:
        """Whether word 64 of `cycles` is the result, in cycles of a body."""
        return self.name.startswith("burst")

    @property
    def source(self) -> str:
        """CUDA C++ of the kernel."""
        body = "\n".join(_at(i, self.body) for i in range(UNROLL))
        return _KERNEL.format(
            threads=32 * max(self.warps),
            begin=self.begin,
            body=body,
            setup=self.setup,
            sink=self.sink,
            fill=self.fill,
            close=self.close,
        )


def _at(position: int, body: str) -> str:
    return _PLACE.sub(lambda found: str(position * int(found[1] or 1)), body)


def _asm(text: str, outs: str = "", ins: str = "") -> str:
    return f'asm volatile("{text}" : {outs} : {ins} : "memory");'


def arithmetic() -> Iterator[Case]:
    """Chains and independent streams of instructions on registers."""
    for name, text, kind, type_ in (
        ("ffma", "fma.rn.f32 %0, %0, %1, %1;", "f", "float"),
        ("imad", "mad.lo.u32 %0, %0, %1, %1;", "r", "u32"),
        ("alu", "prmt.b32 %0, %0, %1, %1;", "r", "u32"),
        ("hfma2", "fma.rn.f16x2 %0, %0, %1, %1;", "r", "u32"),
        ("dfma", "fma.rn.f64 %0, %0, %1, %1;", "d", "double"),
        ("mufu", "ex2.approx.ftz.f32 %0, %0;", "f", "float"),
        ("popc", "popc.b32 %0, %0;", "r", "u32"),
        ("shuffle", "shfl.sync.bfly.b32 %0, %0, 1, 31, -1;", "r", "u32"),
        ("redux", "redux.sync.add.u32 %0, %0, -1;", "r", "u32"),
    ):
        chains = range(4)
        setup = f"{type_} y = one, " + ", ".join(f"x{j} = lane + {j}" for j in chains) + ";"
        one = [f'asm volatile("{text}" : "+{kind}"(x{j}) : "{kind}"(y));' for j in chains]
        sink = "(u32)(x0 + x1 + x2 + x3)"
        yield Case(f"{name} latency", one[0], setup, sink)
        yield Case(f"{name} rate", "".join(one), setup, sink, warps=MANY, per=4)
    for name, types, k in (("f16", "f16.f16", 16), ("tf32", "tf32.tf32", 8)):
        d = "{%0,%1,%2,%3}"
        text = f"mma.sync.aligned.m16n8k{k}.row.col.f32.{types}.f32 {d}, {{%4,%4,%4,%4}}, "
        one = [
            _asm(
                text + "{%4,%4}, " + d + ";",
                ",".join(f'"+f"(d{j}[{i}])' for i in range(4)),
                '"r"(y)',
            )
            for j in chains
        ]
        setup = "u32 y = 0; " + " ".join(f"float d{j}[4] = {{}};" for j in chains)
        sink = "(u32)(" + "+".join(f"d{j}[{i}]" for j in chains for i in range(4)) + ")"
        yield Case(f"mma {name} latency", one[0], setup, sink)
        yield Case(f"mma {name} rate", "".join(one), setup, sink, warps=MANY[:4], per=4)


def memory() -> Iterator[Case]:
    """Loads and stores of shared memory, L1 and L2, by width, bank conflicts and lines."""
    yield Case(
        "shared latency",
        _asm("ld.shared.u32 %0, [%0];", '"+r"(x0)'),
        "u32 x0 = at(shared) + 4 * lane;",
        fill="at(shared) + 4 * i",
    )
    yield Case(
        "shared 16-byte latency",
        _asm("{.reg .u32 a, b, c; ld.shared.v4.u32 {%0, a, b, c}, [%0];}", '"+r"(x0)'),
        "u32 x0 = at(shared) + 16 * lane;",
        fill="at(shared) + i / 4 * 16",
    )
    for words in (1, 2, 4):
        names = ["%0"] if words == 1 else [f"%{j}" for j in range(words)]
        group = names[0] if words == 1 else "{" + ", ".join(names) + "}"
        vector = "" if words == 1 else f".v{words}"
        outs = ", ".join(f'"=r"(x{j})' for j in range(words))
        ins = ", ".join(f'"r"(x{j})' for j in range(words))
        setup, sink = "u32 x0 = 1, x1 = 1, x2 = 1, x3 = 1; ", "x0 + x1 + x2 + x3"
        own = setup + f"u32 a = at(shared) + {4 * words} * threadIdx.x % 16384;"
        load = _asm(
            f"ld.volatile.shared{vector}.u32 {group}, [%{words} + {{i*512}}];", outs, '"r"(a)'
        )
        yield Case(f"shared load {4 * words} B", load, own, sink, warps=MANY)
        yield Case(
            f"shared load {4 * words} B, one address",
            load.replace("*512", "*16"),
            setup + "u32 a = at(shared);",
            sink,
            warps=MANY,
        )
        store = _asm(
            f"st.volatile.shared{vector}.u32 [%{words} + {{i*512}}], {group};", "", f'{ins}, "r"(a)'
        )
        yield Case(f"shared store {4 * words} B", store, own, sink, warps=MANY)
        span = 512 * words  # distinct addresses of a block's threads, in words
        far = setup + f"u32 v0, v1, v2, v3; u32* a = data + {words} * (threadIdx.x % 512);"
        fresh = ", ".join(f'"=r"(v{j})' for j in range(words))
        for level, how in (("L1", "ca"), ("L2", "cg")):
            load = (
                _asm(
                    f"ld.global.{how}{vector}.u32 {group}, [%{words}];",
                    fresh,
                    f'"l"(a + {{i*{span}}})',
                )
                + " x0 ^= v0;"
            )
            yield Case(
                f"global load {4 * words} B, {level}",
                load,
                far,
                sink,
                begin=_SAME,
                warps=MANY,
                turns=8 if level == "L1" else 4,
            )
        store = _asm(
            f"st.global{vector}.u32 [%{words}], {group};", "", f'{ins}, "l"(a + {{i*{span}}})'
        )
        yield Case(
            f"global store {4 * words} B",
            store,
            setup + f"u32* a = out + 65536 + {words} * (threadIdx.x % 512);",
            sink,
            begin=_SAME,
            warps=MANY,
            turns=4,
        )
    for ways in (2, 4, 8, 16, 32):
        load = _asm("ld.volatile.shared.u32 %0, [%1 + {i*4}];", '"=r"(x0)', '"r"(a)')
        yield Case(
            f"shared load {ways} ways",
            load,
            f"u32 x0 = 0, a = at(shared) + 4 * lane * {ways};",
            warps=(1, 8, 32),
        )
    for lines in (1, 2, 4, 8, 16, 32):
        load = _asm("ld.global.ca.u32 %0, [%1];", '"=r"(v)', '"l"(a + {i})') + " x0 ^= v;"
        yield Case(
            f"global load of {lines} lines, L1",
            load,
            f"u32 x0 = 0, v; u32* a = data + lane % {lines} * 32;",
            begin=_SAME,
            warps=(1, 8, 32),
        )
    for sectors in (1, 4, 8, 16, 32):
        load = _asm("ld.global.cg.u32 %0, [%1];", '"=r"(v)', '"l"(a + {i*512})') + " x0 ^= v;"
        yield Case(
            f"global load of {sectors} sectors, L2",
            load,
            f"u32 x0 = 0, v; u32* a = data + lane % {sectors} * 8 + warp * 8192;",
            begin=_SAME,
            warps=(1, 8, 32),
            turns=2,
        )


def bursts() -> Iterator[Case]:
    """Instructions that one warp issues before their queue stalls it, by their number."""
    for kind, address, setup in (
        ("shared load, 1 way", '"r"(a + {j} * 128)', "u32 a = at(shared) + 4 * lane;"),
        ("shared load, 32 ways", '"r"(a + {j} * 4)', "u32 a = at(shared) + 128 * lane;"),
        ("global load, 4 lines", '"l"(a + {j} * 128)', "u32* a = data + 4 * lane;"),
        ("global load, 32 lines", '"l"(a + {j})', "u32* a = data + 32 * lane;"),
    ):
        text = (
            "ld.volatile.shared.u32 %0, [%1];" if "shared" in kind else "ld.global.ca.u32 %0, [%1];"
        )
        for many in (4, 8, 12, 16, 24):
            loads = "".join(
                _asm(text, f'"=r"(v[{j}])', address.replace("{j}", str(j))) for j in range(many)
            )
            yield Case(
                f"burst of {many}: {kind}",
                "{ __syncwarp(); const u64 t = now(); "
                + loads
                + " took += now() - t; "
                + f"for (int j = 0; j < {many}; j++) x0 ^= v[j]; }}",
                setup + f" u32 x0 = 0, v[{many}]; u64 took = 0;",
                sink="x0",
                close=f"if (lane == 0) cycles[64] = took / (n * {UNROLL});",
                turns=2,
            )


def latencies() -> Iterator[Case]:
    """Chains of addresses through L1, L2 and device memory, constants, atomics, barriers."""
    step = "{.reg .u64 t; cvt.u64.u32 t, %0; add.u64 t, t, %1; ld.global.HOW.u32 %0, [t];}"
    for name, how, nbytes in (
        ("L1", "ca", 16384),
        ("L2, 4 MB", "cg", 4 * MB),
        ("L2, 24 MB", "cg", 24 * MB),
        ("device memory", "cg", 1024 * MB),
    ):
        yield Case(
            f"{name} latency",
            _asm(step.replace("HOW", how), '"+r"(x0)', '"l"(data)'),
            "u32 x0 = first;",
            turns=32,
            chain=nbytes,
        )
    yield Case(
        "64-bit addition",
        _asm("add.u64 %0, %0, %1;", '"+l"(y)', '"l"(z)')
        + _asm("xor.b64 %0, %0, %1;", '"+l"(y)', '"l"(z)'),
        "u64 y = lane, z = first;",
        "(u32)y",
    )
    yield Case(
        "special register latency",
        _asm("{.reg .pred p; setp.ne.u32 p, %0, 99; @p mov.u32 %0, %%smid;}", '"+r"(x0)'),
    )
    yield Case(
        "loop of one instruction",
        f'_Pragma("unroll 1") for (u32 j = 0; j < {UNROLL} * one; j++) '
        + _asm("prmt.b32 %0, %0, %1, %1;", '"+r"(x0)', '"r"(one)'),
        turns=2,
        per=UNROLL,
    )
    yield Case("constant latency", "x0 = table[x0];", "u32 x0 = first;")
    yield Case(
        "global atomic latency",
        _asm("atom.global.add.u32 %0, [%1], %0;", '"+r"(x0)', '"l"(out + 65536)'),
        "u32 x0 = 0; if (lane) n = 0;",
        turns=2,
    )
    yield Case(
        "shared atomic latency",
        _asm("atom.shared.add.u32 %0, [%1], %0;", '"+r"(x0)', '"r"(at(shared) + 4 * lane)'),
        turns=2,
    )
    yield Case(
        "shared atomic rate",
        _asm("red.shared.add.u32 [%1 + {i*128}], %0;", "", '"r"(x0), "r"(at(shared) + 4 * lane)'),
        warps=MANY,
        turns=2,
    )
    yield Case("barrier", _asm("bar.sync 0;"), warps=(1, 2, 4, 8, 16, 32))
    yield Case("fence of a block", _asm("fence.acq_rel.cta;"), turns=2)
    yield Case("fence of the GPU", _asm("fence.acq_rel.gpu;"), turns=2)
    yield Case(
        "cp.async latency",
        _asm(
            "cp.async.cg.shared.global [%0], [%1], 16; cp.async.wait_all;",
            "",
            '"r"(at(shared) + 16 * lane), "l"(data + 4 * lane)',
        ),
        turns=2,
    )
    yield Case(
        "ldmatrix latency",
        _asm(
            "{.reg .b32 a,b,c; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,a,b,c}, [%0];}",
            '"+r"(x0)',
        ),
        "u32 x0 = at(shared) + lane * 16;",
        fill="at(shared)",
    )


def hopper() -> Iterator[Case]:
    """Warpgroup products by shape, mbarriers and bulk copies of compute capability 9.0."""
    descriptor = (
        "const u64 a = ((u64)(at(shared) >> 4) & 0x3fff) | 1ull << 16 | 64ull << 32 | 1ull << 62;"
    )
    for n, k, kind in (
        (8, 16, "f16"),
        (32, 16, "f16"),
        (64, 16, "f16"),
        (128, 16, "f16"),
        (256, 16, "f16"),
        (128, 8, "tf32"),
        (256, 8, "tf32"),
    ):
        regs = n // 2
        d = "{" + ",".join(f"%{i}" for i in range(regs)) + "}"
        tail = "1, 1, 1, 0, 0" if kind == "f16" else "1, 1, 1"
        shape = f"m64n{n}k{k}.f32.{kind}.{kind}"
        text = f"wgmma.mma_async.sync.aligned.{shape} {d}, %{regs}, %{regs}, {tail};"
        outs = ", ".join(f'"+f"(d[{i}])' for i in range(regs))
        one = f'asm volatile("{text}" : {outs} : "l"(a));'
        begin = _asm("wgmma.fence.sync.aligned;")
        end = _asm("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;")
        setup = descriptor + f" float d[{regs}]; for (int i = 0; i < {regs}; i++) d[i] = 0;"
        sink = "(u32)(" + "+".join(f"d[{i}]" for i in range(regs)) + ")"
        yield Case(
            f"wgmma m64n{n}k{k} {kind} latency", begin + one + end, setup, sink, warps=(4,), turns=4
        )
        yield Case(
            f"wgmma m64n{n}k{k} {kind} rate",
            begin + 4 * one + end,
            setup,
            sink,
            warps=(4, 8),
            turns=4,
            per=4,
        )
    setup = (
        "u32 x0 = 0, phase = 0; const u32 b = at(shared); if (threadIdx.x == 0) "
        + _asm("mbarrier.init.shared.b64 [%0], 1;", "", '"r"(b)')
        + _asm("fence.mbarrier_init.release.cluster;")
        + " __syncthreads();"
    )
    wait = (
        _asm(
            "{.reg .pred p; W%=: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @!p bra W%=;}",
            "",
            '"r"(b), "r"(phase)',
        )
        + " phase ^= 1; "
    )
    yield Case(
        "mbarrier",
        "if (threadIdx.x == 0) " + _asm("mbarrier.arrive.shared.b64 _, [%0];", "", '"r"(b)') + wait,
        setup,
        turns=2,
        warps=(1, 4, 8),
    )
    for nbytes, many in (
        (16, 1),
        (1024, 1),
        (4096, 1),
        (16384, 1),
        (128, 16),
        (1024, 16),
        (4096, 4),
    ):
        copies = "".join(
            _asm(
                f"{_BULK} [%0], [%1], %2, [%3];",
                "",
                f'"r"(b + {1024 + j * nbytes}), "l"(data + {j * nbytes // 4}), "r"({nbytes}), '
                '"r"(b)',
            )
            for j in range(many)
        )
        expect = _asm(
            "mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;", "", f'"r"(b), "r"({nbytes * many})'
        )
        yield Case(
            f"bulk copy of {nbytes} B, {many} at a time",
            "if (threadIdx.x == 0) {" + expect + copies + "}" + wait,
            setup,
            turns=2,
            per=many,
        )


def cases(capability: int) -> list[Case]:
    """All cases of a GPU. capability: such as 90."""
    common = [*arithmetic(), *memory(), *bursts(), *latencies()]
    return common + (list(hopper()) if capability == 90 else [])
