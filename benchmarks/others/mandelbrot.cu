//! gemmlab block=16,16 grid=n/16,n/16 args=out:i32[n*n]=zeros,n n=4096

// How soon points leave the set, at most after 256 steps: threads of a warp differ.
extern "C" __global__ void mandelbrot(int* out, int n) {
  const int j = blockIdx.x * 16 + threadIdx.x, i = blockIdx.y * 16 + threadIdx.y;
  const float a = -2.25f + 3.0f * j / n, b = -1.5f + 3.0f * i / n;
  float x = 0, y = 0;
  int steps = 0;
  for (; steps < 256 && x * x + y * y < 4; steps++) {
    const float next = x * x - y * y + a;
    y = 2 * x * y + b;
    x = next;
  }
  out[i * n + j] = steps;
}
