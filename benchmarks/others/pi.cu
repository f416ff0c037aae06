//! gemmlab block=256 grid=ceil_div(n,256) args=hits:i32[1]=zeros,n,k n=262144 k=256

// Each thread throws k points by a linear congruential generator, and a warp adds its hits once.
extern "C" __global__ void count(int* hits, int n, int k) {
  unsigned state = (blockIdx.x * blockDim.x + threadIdx.x) * 2654435761u + 1;
  int inside = 0;
  for (int i = 0; i < k; i++) {
    state = state * 1664525u + 1013904223u;
    const float x = (state >> 8) * 5.9604645e-8f;
    state = state * 1664525u + 1013904223u;
    const float y = (state >> 8) * 5.9604645e-8f;
    inside += x * x + y * y < 1;
  }
  for (int delta = 16; delta; delta /= 2) inside += __shfl_down_sync(~0u, inside, delta);
  if (threadIdx.x % 32 == 0) atomicAdd(hits, inside);
}
