//! gemmlab args=a:f32[m*p],b:f32[p*n],c:f32[m*n]=empty,m,n,p m=37 n=29 p=32 block=16,16 grid=2,3
// Shared memory past the edge of the matrix holds garbage that does not reach the output.
extern "C" __global__ void k(const float* a, const float* b, float* c, int m, int n, int p) {
  __shared__ float sa[16][17], sb[16][17];
  int tx = threadIdx.x, ty = threadIdx.y, r = blockIdx.y * 16 + ty, q = blockIdx.x * 16 + tx;
  float acc = 0;
  for (int k0 = 0; k0 < p; k0 += 16) {
    if (r < m) sa[ty][tx] = a[r * p + k0 + tx];
    if (q < n) sb[ty][tx] = b[(k0 + ty) * n + q];
    __syncthreads();
    for (int i = 0; i < 16; ++i) acc += sa[ty][i] * sb[i][tx];
    __syncthreads();
  }
  if (r < m && q < n) c[r * n + q] = acc;
}
