//! gemmlab block=256 grid=4 args=x:f32[1024*stride+offset],y:f32[1024]=empty,stride,offset
//! gemmlab stride=1 offset=0

// Neighbouring threads read elements that are `stride` apart; the first is element `offset`.
extern "C" __global__ void gather(const float* x, float* y, int stride, int offset) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[i * stride + offset];
}
