// c = a + b for vectors of n float32 numbers. Each thread adds one element.
//! gemmlab problem=vector-add entry=add args=a,b,c,n
//! gemmlab block=256 grid=ceil_div(n,256)

extern "C" __global__ void add(const float* a, const float* b, float* c, long long n) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
