//! gemmlab block=256 grid=4 args=y:f32[1024]=empty,width width=32

// Threads take one of two paths in turns of `width`: all of a warp take the same if width is a
// multiple of 32.
extern "C" __global__ void paths(float* y, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float value = i;
  if (i / width % 2 == 0) {
    for (int step = 0; step < 100; ++step) value = value * 0.5f + 1;
  } else {
    for (int step = 0; step < 100; ++step) value = value * 0.25f - 1;
  }
  y[i] = value;
}
