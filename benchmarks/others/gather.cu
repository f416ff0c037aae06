//! gemmlab block=256 grid=n/256 args=y:f32[n]=zeros,x:f32[s],n,s n=4194304 s=67108864

// Reads elements at scattered places, which a hash of the index gives; s is a power of two.
extern "C" __global__ void gather(float* y, const float* x, int n, int s) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned hash = i * 2654435761u;
  hash ^= hash >> 15;
  hash *= 2246822519u;
  hash ^= hash >> 13;
  y[i] = x[hash & (s - 1)];
}
