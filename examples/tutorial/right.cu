// The sum of x. Each block adds its values in a tree.
//! gemmlab problem=sum args=x,out,n block=256 grid=ceil_div(n,256) n=1000

extern "C" __global__ void sum(const float* x, float* out, long long n) {
  __shared__ float s[256];
  int t = threadIdx.x;
  long long i = blockIdx.x * 256ll + t;
  s[t] = i < n ? x[i] : 0;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (t < half) s[t] += s[t + half];
    __syncthreads();
  }
  if (t == 0) atomicAdd(out, s[0]);
}
