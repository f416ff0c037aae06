// How often each of the 256 byte values occurs in n bytes. Each thread counts one byte.
//! gemmlab problem=histogram entry=histogram args=data,counts,n
//! gemmlab block=256 grid=ceil_div(n,256)

// counts has 256 numbers, which are 0 when the kernel starts.
extern "C" __global__ void histogram(const unsigned char* data, unsigned* counts, long long n) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&counts[data[i]], 1u);
}
