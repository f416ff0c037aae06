// Kernels that leave elements of an output unwritten, by mistake or on purpose. Each has its words
// of a directive; the line to be found is marked, with what is said of it.
#include <cuda_fp16.h>
#define KERNEL extern "C" __global__ void
#define I (int)(blockIdx.x * blockDim.x + threadIdx.x)

//! args=x:f32[n],y:f32[n],n n=64 block=32 grid=2
KERNEL guard(const float* x, float* y, int n) {
  if (I < n - 4) {
    y[I] = x[I];  // expect: 4 of 64 elements of y are never written (60, 61, 62, 63);
  }
}

//! args=x:f32[n],y:f32[n],n n=100 block=32 grid=3
KERNEL grid_too_small(const float* x, float* y, int n) {
  if (I < n) y[I] = 2 * x[I];  // expect: 4 of 100 elements of y are never written (96,
}

//! args=x:f32[m*n],y:f32[m*n],m,n m=4 n=24 block=16 grid=1
KERNEL last_columns(const float* x, float* y, int m, int n) {
  for (int row = 0; row < m; ++row)
    y[row * n + I] = x[row * n + I];  // expect: 32 of 96 elements of y are never written (16, 17, 18, 19, …);
}

//! args=x:f32[4*n],y:f32[4*n] n=32 block=32 grid=1
KERNEL three_of_four(const float* x, float* y) {
  for (int k = 0; k < 3; ++k) y[4 * I + k] = x[4 * I + k];  // expect: 32 of 128 elements of y are never written (3, 7, 11, 15, …);
}

//! args=x:f16[n],y:f16[n],n n=61 block=32 grid=1
KERNEL odd_half(const __half* x, __half* y, int n) {
  if (2 * I + 1 < n) {
    y[2 * I] = x[2 * I];
    y[2 * I + 1] = x[2 * I + 1];  // expect: 1 of 61 elements of y are never written (60);
  }
}

//! args=x:f32[n],y:f32[n],n n=64 block=32 grid=2
KERNEL values_of_data(const float* x, float* y, int n) {
  float v = x[I];
  if (v < 0) v = __expf(v) - 1;
  if (I > 0) y[I] = v;  // expect: 1 of 64 elements of y are never written (0);
}

//! args=ends:u32[n]=arange,x:f32[n],y:f32[n],n n=32 block=32 grid=1
KERNEL trips_of_data(const unsigned* ends, const float* x, float* y, int n) {
  float sum = 0;
  for (unsigned k = 0; k < ends[I]; ++k) sum += x[k];
  if (I < n - 1) y[I] = sum;  // expect: 1 of 32 elements of y are never written (31);
}

//! args=x:f32[n],y:f32[2*n],n n=32 block=16 grid=1
KERNEL through_shared(const float* x, float* y, int n) {
  __shared__ float tile[16];
  tile[I] = x[I];
  __syncthreads();
  y[I] = tile[15 - I];  // expect: 48 of 64 elements of y are never written (16,
}

//! args=x:f32[m*n],y:f32[m*n],m,n m=4 n=24 block=32 grid=1
KERNEL first_row(const float* x, float* y, int m, int n) {
  if (I < n) y[I] = x[I];  // expect: 72 of 96 elements of y are never written (24, 25, 26, 27, …);
}

//! args=x:f32[m*n],y:f32[m*n],m,n m=4 n=24 block=32 grid=1
KERNEL swapped_sizes(const float* x, float* y, int m, int n) {
  for (int row = 0; row < m; ++row)
    if (I < m) y[row * n + I] = x[row * n + I];  // expect: 80 of 96 elements of y are never written (4, 5,
}

//! args=x:f32[n],y:f32[4*n],n n=16 block=16 grid=1
KERNEL vectors(const float* x, float4* y, int n) {
  if (I < n - 1) y[I] = make_float4(x[I], 0, 1, 2);  // expect: 4 of 64 elements of y are never written (60, 61, 62, 63);
}

//! args=x:f32[n],w:i32[2],y:f32[n]=zeros,z:f32[n],n n=32 block=32 grid=1
KERNEL one_of_four(const float* x, int* w, float* y, float* z, int n) {
  if (I < n - 1) y[I] = x[I];
  if (I < n - 2) z[I] = x[I];  // expect: 2 of 32 elements of z are never written (30, 31);
}

//! args=x:f32[n],at:u32[n]=arange,y:f32[2*n]=empty n=32 block=32 grid=1
KERNEL scatter_into_empty(const float* x, const unsigned* at, float* y) {
  y[at[I]] = x[I];  // expect: 32 of 64 elements of y are never written (32,
}

//! args=x:f32[n],y:f32[n],n n=64 block=32 grid=2
KERNEL whole(const float* x, float* y, int n) { y[I] = x[I]; }

//! args=x:f32[n],y:f32[100],n n=60 block=32 grid=2
KERNEL longer_array(const float* x, float* y, int n) {
  if (I < n) y[I] = x[I];
}

//! args=x:f32[m*n],y:f32[m*ld],m,n,ld m=4 n=24 ld=32 block=32 grid=1
KERNEL padded_rows(const float* x, float* y, int m, int n, int ld) {
  for (int row = 0; row < m; ++row)
    if (I < n) y[row * ld + I] = x[row * n + I];
}

//! args=x:f32[n],y:f32[n]=zeros,z:f32[n]=normal,n n=64 block=32 grid=2
KERNEL with_a_fill(const float* x, float* y, float* z, int n) {
  if (I < n - 4) y[I] = z[I + 4] = x[I];
}

//! args=x:f32[n],y:f32[n],n n=64 block=32 grid=2
KERNEL in_place(const float* x, float* y, int n) {
  if (I < n - 4) y[I] += x[I];
}

//! args=x:f32[n],y:f32[n],n n=64 block=32 grid=2
KERNEL reads_one(const float* x, float* y, int n) {
  if (I < n - 4) y[I] = x[I] + y[n - 1];
}

//! args=x:f32[n],y:f32[n],n n=64 block=32 grid=2
KERNEL reads_volatile(const float* x, volatile float* y, int n) {
  if (I < n - 4) y[I] = x[I] + y[I];
}

//! args=x:f32[n],y:f32[n],n n=64 block=32 grid=1
KERNEL copied_in(const float* x, float* y, int n) {
  __shared__ float tile[32];
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\n\tcp.async.wait_all;" ::
      "r"((unsigned)__cvta_generic_to_shared(tile + I)), "l"(y + I) : "memory");
  y[I] = tile[I] + x[I];
}

//! args=y:u32[n],z:u32[n],n n=64 block=32 grid=1
KERNEL histograms(unsigned* y, unsigned* z, int n) {
  atomicAdd(y + I, 1u);
  if (atomicExch(z + I, I) == 0) z[I] = 1;
}

//! args=x:f32[n],at:u32[n]=arange,y:f32[2*n] n=32 block=32 grid=1
KERNEL scatter(const float* x, const unsigned* at, float* y) { y[at[I]] = x[I]; }

//! args=x:f32[n],at:f32[n],y:f32[n] n=32 block=32 grid=1
KERNEL filter(const float* x, const float* at, float* y) {
  if (at[I] > 0) y[I] = x[I];
}

//! args=x:f32[n],y:f32[n],z:f32[n],n n=32 block=32 grid=1
KERNEL if_else(const float* x, float* y, float* z, int n) {
  if (x[I] > 0) {
    for (int k = 0; k < n; ++k) y[I] = x[k];
  } else {
    for (int k = 0; k < n; ++k) z[I] = x[k];
  }
}

//! args=x:f32[n],y:f32[n],n n=32 block=32 grid=1
KERNEL early_return(const float* x, float* y, int n) {
  if (x[I] < 0) return;
  for (int k = 0; k < n; ++k) y[I] = x[k];
}

//! args=x:f32[n],y:f32[n],c:u32[1]=zeros n=64 block=32 grid=2
KERNEL compaction(const float* x, float* y, unsigned* c) {
  if (x[I] > 0) y[atomicAdd(c, 1u)] = x[I];
}

//! args=x:f32[n],y:f32[n] n=32 block=32 grid=1
KERNEL compaction_by_votes(const float* x, float* y) {
  bool keeps = x[I] > 0;
  unsigned below = __ballot_sync(~0u, keeps) & ((1u << I) - 1);
  if (keeps) y[__popc(below)] = x[I];
}

//! args=x:f32[n],y:f32[n],n n=32 block=1 grid=1
KERNEL compaction_in_turn(const float* x, float* y, int n) {
  int count = 0;
  for (int k = 0; k < n; ++k)
    if (x[k] > 0) y[count++] = x[k];
}

//! args=x:f32[n],y:f32[n] n=32 block=32 grid=1
KERNEL compaction_by_scan(const float* x, float* y) {
  __shared__ int counts[32];
  counts[I] = x[I] > 0;
  __syncthreads();
  for (int d = 1; d < 32; d *= 2) {
    int other = I >= d ? counts[I - d] : 0;
    __syncthreads();
    counts[I] += other;
    __syncthreads();
  }
  if (I == 0 ? counts[0] : counts[I] - counts[I - 1]) y[counts[I] - 1] = x[I];
}

//! args=ends:u32[n]=arange,x:f32[n],y:f32[n*n],n n=32 block=32 grid=1
KERNEL ragged(const unsigned* ends, const float* x, float* y, int n) {
  for (unsigned k = 0; k < ends[I]; ++k) y[I * n + k] = x[k];
}
