//! gemmlab args=y:f32[n]=empty,flags:u32[n]=zeros n=8 block=32 grid=n
// Each block waits for the previous one, with release and acquire.
extern "C" __global__ void k(float* y, unsigned* flags) {
  int b = blockIdx.x;
  if (threadIdx.x != 0) return;
  float before = 0.0f;
  if (b > 0) {
    unsigned ready = 0;
    while (!ready)
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(ready) : "l"(flags + b - 1) : "memory");
    before = y[b - 1];
  }
  y[b] = before + 1.0f;
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flags + b), "r"(1) : "memory");
}
