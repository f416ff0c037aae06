//! gemmlab block=256 grid=n/256 args=out:f32[4*n]=zeros,bodies:f32[4*n],n n=16384

// Forces between all bodies, whose positions pass through shared memory.
extern "C" __global__ void nbody(float4* out, const float4* bodies, int n) {
  __shared__ float4 near[256];
  const float4 own = bodies[blockIdx.x * 256 + threadIdx.x];
  float3 force = {0, 0, 0};
  for (int tile = 0; tile < n; tile += 256) {
    near[threadIdx.x] = bodies[tile + threadIdx.x];
    __syncthreads();
#pragma unroll 32
    for (int j = 0; j < 256; j++) {
      const float x = near[j].x - own.x, y = near[j].y - own.y, z = near[j].z - own.z;
      const float root = rsqrtf(x * x + y * y + z * z + 0.01f);
      const float scale = near[j].w * root * root * root;
      force.x += x * scale;
      force.y += y * scale;
      force.z += z * scale;
    }
    __syncthreads();
  }
  out[blockIdx.x * 256 + threadIdx.x] = make_float4(force.x, force.y, force.z, 0);
}
