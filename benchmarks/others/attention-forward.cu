//! gemmlab block=32 grid=t/32,h smem=4*(3*32*65) args=out:f32[h*t*64]=zeros,q:f32[h*t*64],k:f32[h*t*64],v:f32[h*t*64],t h=16 t=1024

// A thread per query: keys and values pass through shared memory, 32 at a time, and the sum of a
// row is corrected whenever its maximum grows.
extern "C" __global__ void attention_forward(float* out, const float* q, const float* k, const float* v, int t) {
  extern __shared__ float tiles[];
  float *queries = tiles, *keys = tiles + 32 * 65, *values = tiles + 2 * 32 * 65;
  const int lane = threadIdx.x, head = blockIdx.y * t * 64, first = blockIdx.x * 32;
  for (int i = lane; i < 32 * 64; i += 32) queries[i / 64 * 65 + i % 64] = q[head + first * 64 + i] * 0.125f;
  float most = -1e30f, sum = 0, result[64] = {};
  for (int at = 0; at < t; at += 32) {
    __syncthreads();
    for (int i = lane; i < 32 * 64; i += 32) {
      keys[i / 64 * 65 + i % 64] = k[head + at * 64 + i];
      values[i / 64 * 65 + i % 64] = v[head + at * 64 + i];
    }
    __syncthreads();
    float scores[32], highest = most;
#pragma unroll
    for (int j = 0; j < 32; j++) {
      float score = 0;
      for (int d = 0; d < 64; d++) score += queries[lane * 65 + d] * keys[j * 65 + d];
      scores[j] = score;
      highest = fmaxf(highest, score);
    }
    const float scale = __expf(most - highest);
    sum *= scale;
    for (int d = 0; d < 64; d++) result[d] *= scale;
#pragma unroll
    for (int j = 0; j < 32; j++) {
      const float weight = __expf(scores[j] - highest);
      sum += weight;
#pragma unroll
      for (int d = 0; d < 64; d++) result[d] += weight * values[j * 65 + d];
    }
    most = highest;
  }
  __syncthreads();
#pragma unroll
  for (int d = 0; d < 64; d++) queries[lane * 65 + d] = result[d] / sum;
  __syncthreads();
  for (int i = lane; i < 32 * 64; i += 32) out[head + first * 64 + i] = queries[i / 64 * 65 + i % 64];
}
