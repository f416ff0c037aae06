//! gemmlab entry=chase block=1 grid=1 args=next:u32[n]=zeros,clocks:u64[1]=empty,warm,steps
//! gemmlab n=32 warm=32 steps=1000

// One thread follows a chain of indices: each load needs the result of the load before. The first
// `warm` loads bring the chain into a cache and are not timed.
extern "C" __global__ void chase(const unsigned* next, unsigned long long* clocks, int warm,
                                 int steps) {
  unsigned at = 0;
  for (int i = 0; i < warm; ++i) at = next[at];
  long long start = clock64();
  for (int i = 0; i < steps; ++i) at = next[at];
  clocks[0] = clock64() - start + (at >> 31);  // uses `at`, so that the compiler keeps the loads
}

// The same in shared memory; the chain has at most 1,024 elements.
extern "C" __global__ void chase_shared(const unsigned* next, unsigned long long* clocks, int n,
                                        int steps) {
  __shared__ unsigned chain[1024];
  for (int i = 0; i < n; ++i) chain[i] = next[i];
  unsigned at = 0;
  long long start = clock64();
  for (int i = 0; i < steps; ++i) at = chain[at];
  clocks[0] = clock64() - start + (at >> 31);
}

// Multiply-adds in registers, each of which needs the result of the one before.
extern "C" __global__ void multiply_add(float x, unsigned long long* clocks, int steps) {
  float sum = 0;
  long long start = clock64();
#pragma unroll 100
  for (int i = 0; i < steps; ++i) sum = sum * x + 1;
  clocks[0] = clock64() - start + (sum < 0);
}
