//! gemmlab block=32 grid=1 args=y:f32[32]=empty,stride stride=1 smem=4*32*stride

// Lane i writes word i·stride of shared memory and reads it again. The launch says how much shared
// memory there is: smem=.
extern __shared__ float words[];

extern "C" __global__ void columns(float* y, int stride) {
  int lane = threadIdx.x;
  words[lane * stride] = lane;
  __syncwarp();
  y[lane] = words[lane * stride];
}
