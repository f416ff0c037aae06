//! gemmlab block=32,8 grid=n/32,n/8,o args=y:f32[o*n*n]=zeros,x:f32[c*n*n],w:f32[o*c*9],c,n c=16 n=256 o=32

// A layer of 3×3 filters, one result per thread, as the loops are written.
extern "C" __global__ void convolution(float* y, const float* x, const float* w, int c, int n) {
  const int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
  float sum = 0;
  for (int channel = 0; channel < c; channel++)
    for (int i = 0; i < 3; i++)
      for (int j = 0; j < 3; j++) {
        const int r = row + i - 1, k = column + j - 1;
        if (r >= 0 && r < n && k >= 0 && k < n)
          sum += x[(channel * n + r) * n + k] * w[(blockIdx.z * c + channel) * 9 + i * 3 + j];
      }
  y[(blockIdx.z * n + row) * n + column] = sum;
}
