"""Static checks: whether a kernel keeps state in variables of its module."""

import pytest

from gemmlab.lab.submission.static import forbidden

KEEPS = {
    "counts": ("__device__ int kept;", "x[0] = kept++;"),
    "through a function": (
        "__device__ int kept[4];\n__device__ __noinline__ void put(int* p, int i) { p[i] = i; }",
        "put(kept, n); x[0] = kept[n];",
    ),
    "through a function's result": (
        "__device__ int kept[4];\n__device__ __noinline__ int* at(int i) { return kept + i; }",
        "*at(n) = 3; x[0] = kept[n];",
    ),
    "through shared memory": (
        "__device__ int kept[4];",
        "__shared__ int* s[32]; s[threadIdx.x] = kept; __syncthreads(); *s[n] = 3; x[0] = kept[n];",
    ),
    "through a shuffle of halves": (
        "__device__ int kept;",
        "auto p = (unsigned long long)&kept; auto low = __shfl_sync(~0u, (unsigned)p, 0);"
        "*(int*)(p >> 32 << 32 | low) = n; x[0] = kept;",
    ),
}
KEEPS_NOTHING = {
    "tables": ("__device__ const float t[4] = {1, 2, 3, 4};", "x[0] = t[n & 3];"),
    "texts": (
        "#include <cassert>\n__device__ __noinline__ void say(const char* s) { printf(s); }",
        'say("x"); assert(n > 0); printf("%s %d\\n", "abc", n); x[n] = 1;',
    ),
    "virtual functions": (
        "struct A { virtual __device__ int f() { return 1; } };\n"
        "struct B : A { __device__ int f() override { return 2; } };",
        "A* a = n > 3 ? new A : new B; x[0] = a->f(); delete a;",
    ),
    "copies of it": (
        "__device__ float kept[4];",
        "__shared__ float s[4]; auto p = (unsigned)__cvta_generic_to_shared(s);"
        'asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(p), "l"(kept));'
        "x[0] = s[0];",
    ),
}


@pytest.mark.parametrize("name", [*KEEPS, *KEEPS_NOTHING])
def test_writable_module_variables_are_found(judge, name):
    before, body = (KEEPS | KEEPS_NOTHING)[name]
    text = f'{before}\nextern "C" __global__ void k(float* x, int n) {{ {body} }}\n'
    found = forbidden(judge.artifact(text).ptx)
    assert (found is not None and found.startswith("keeps kept ")) == (name in KEEPS), found


@pytest.mark.parametrize("name", ["$str", "__unnamed_1", "kept"])
@pytest.mark.parametrize("where", [".shared .u32 s; ", "/* a comment */ ", ""])
def test_a_module_variable_is_found_under_any_name(name, where):
    """Handwritten PTX can use any name, including those that compilers use for strings."""
    ptx = (
        ".version 8.0\n.target sm_90a\n.address_size 64\n"
        f"{where}.global .align 4 .b8 {name}[4] = {{1}};\n"
        ".visible .entry k() {\n.reg .b64 %d<2>;\n.reg .b32 %r;\n"
        f"mov.u64 %d0, {name};\nld.global.u32 %r, [%d0];\nSTORE\nret;\n}}\n"
    )
    assert forbidden(ptx.replace("STORE", "")) is None
    for store in ("st.global.u32 [%d0], %r;", f"red.global.add.u32 [{name}], %r;"):
        found = forbidden(ptx.replace("STORE", store))
        assert found is not None and f"keeps {name} " in found
