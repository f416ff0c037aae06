"""Kernel files for the judge: a correct one, and its variants."""

HEAD = """\
//! gemmlab problem=gemm entry=gemm args=a,b,c,m,n,k layout=row
//! gemmlab block=16,16 grid=ceil_div(n,16),ceil_div(m,16)
"""
SIGNATURE = (
    'extern "C" __global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k)'
)
INDICES = """\
  int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  bool inside = row < m && col < n;
"""
LOOP = """\
  float sum = 0;
  for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + col];
"""


def gemm(loop=LOOP, before="", first="  if (!inside) return;\n", store="c[row * n + col] = sum;"):
    """Return a matrix product; each part of the source can be replaced."""
    return f"{HEAD}{before}\n{SIGNATURE} {{\n{INDICES}{first}{loop}  {store}\n}}\n"


def rounded(function):
    """Return a product of rounded inputs; `function` is the body of float cut(float x)."""
    before = f"__device__ float cut(float x) {{ {function} }}"
    return gemm(
        LOOP.replace("a[row * k + i]", "cut(a[row * k + i])")
        .replace("b[i", "cut(b[i")
        .replace("+ col];", "+ col]);"),
        before,
    )


NEAREST = "return __uint_as_float((__float_as_uint(x) + {half}u) & {mask}u);"
TF32 = NEAREST.format(half="0x1000", mask="0xffffe000")
TF32_CUT = "return __uint_as_float(__float_as_uint(x) & 0xffffe000u);"
FP16 = """
  unsigned short half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
  return x;
"""
BF16 = NEAREST.format(half="0x8000", mask="0xffff0000")
BF16_CUT = "return __uint_as_float(__float_as_uint(x) & 0xffff0000u);"


def in_parts(mask):
    """Return a product that splits each input in two parts and adds three of the four products."""
    before = (
        "__device__ float high(float x) "
        f"{{ return __uint_as_float(__float_as_uint(x) & {mask}u); }}"
    )
    loop = """\
  float sum = 0;
  for (int i = 0; i < k; ++i) {
    float x = a[row * k + i], y = b[i * n + col];
    float xh = high(x), xl = high(x - xh), yh = high(y), yl = high(y - yh);
    sum += xl * yh;
    sum += xh * yl;
    sum += xh * yh;
  }
"""
    return gemm(loop, before)
