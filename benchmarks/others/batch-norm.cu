//! gemmlab block=512 grid=c args=y:f32[b*c*n]=zeros,x:f32[b*c*n],scale:f32[c],shift:f32[c],b,c,n b=32 c=256 n=784

// A block per channel: mean and variance by Welford's update, combined across the block; then the
// channel is read again and normalized.
extern "C" __global__ void batch_norm(float* y, const float* x, const float* scale, const float* shift, int b, int c, int n) {
  __shared__ float means[16], squares[16], counts[16];
  const int channel = blockIdx.x, t = threadIdx.x;
  float mean = 0, square = 0, count = 0;
  for (int image = 0; image < b; image++)
    for (int i = t; i < n; i += 512) {
      const float value = x[((size_t)image * c + channel) * n + i], before = value - mean;
      count += 1;
      mean += before / count;
      square += before * (value - mean);
    }
  auto join = [&](float other_mean, float other_square, float other_count) {
    const float all = fmaxf(count + other_count, 1.0f), apart = other_mean - mean;
    mean += apart * other_count / all;
    square += other_square + apart * apart * count * other_count / all;
    count += other_count;
  };
  for (int delta = 16; delta; delta /= 2) {
    const float m = __shfl_down_sync(~0u, mean, delta), s = __shfl_down_sync(~0u, square, delta);
    join(m, s, __shfl_down_sync(~0u, count, delta));
  }
  if (t % 32 == 0) means[t / 32] = mean, squares[t / 32] = square, counts[t / 32] = count;
  __syncthreads();
  mean = square = count = 0;
  for (int i = 0; i < 16; i++) join(means[i], squares[i], counts[i]);
  const float factor = rsqrtf(square / count + 1e-5f) * scale[channel];
  for (int image = 0; image < b; image++)
    for (int i = t; i < n; i += 512) {
      const size_t at = ((size_t)image * c + channel) * n + i;
      y[at] = (x[at] - mean) * factor + shift[channel];
    }
}
