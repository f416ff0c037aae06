//! gemmlab args=data:f32[1]=empty,flag:i32[1]=zeros,y:f32[1]=empty block=1 grid=2
// The release has block scope, but another block reads the data.
extern "C" __global__ void k(float* data, int* flag, float* y) {
  if (blockIdx.x == 0) {
    *data = 3.0f;
    asm volatile("st.release.cta.global.s32 [%0], 1;" ::"l"(flag) : "memory");
  } else {
    int ready = 0;
    while (ready == 0) asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(ready) : "l"(flag) : "memory");
    *y = *data;  // expect: global race
  }
}
