// The sum of n float32 numbers. Each thread adds its element to the result.
//! gemmlab problem=sum entry=sum args=x,out,n
//! gemmlab block=256 grid=ceil_div(n,256)

// out holds 0 when the kernel starts.
extern "C" __global__ void sum(const float* x, float* out, long long n) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(out, x[i]);
}
