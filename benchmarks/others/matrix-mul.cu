//! gemmlab problem=gemm layout=row args=a,b,c,m,n,k block=32,32 grid=n/32,m/32

// The textbook product of 32×32 tiles in shared memory, unrolled. Sizes: multiples of 32.
extern "C" __global__ void matrix_mul(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float as[32][32], bs[32][32];
  const int tx = threadIdx.x, ty = threadIdx.y;
  const int first = k * 32 * blockIdx.y, last = first + k - 1;
  float sum = 0;
  for (int at = first, of_b = 32 * blockIdx.x; at <= last; at += 32, of_b += 32 * n) {
    as[ty][tx] = a[at + k * ty + tx];
    bs[ty][tx] = b[of_b + n * ty + tx];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 32; ++i) sum += as[ty][i] * bs[i][tx];
    __syncthreads();
  }
  c[n * 32 * blockIdx.y + 32 * blockIdx.x + n * ty + tx] = sum;
}
