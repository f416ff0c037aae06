// Tiles of 128×128×8 of A (rows along k) and B (columns along k), loaded by float4 and stored to
// shared memory word by word; 8×8 results per thread. C is column-major; sizes are multiples.
extern "C" __global__ void __launch_bounds__(256) sgemm(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float As[128][8]; __shared__ float Bs[8][128];
  int t = threadIdx.x; int by = blockIdx.y, bx = blockIdx.x;
  int am = t / 2, ak = t % 2 * 4;
  float acc[8][8] = {};
  int ty = t / 16, tx = t % 16;
  for (int k0 = 0; k0 < K; k0 += 8) {
    float4 a = *reinterpret_cast<const float4*>(&A[(by * 128 + am) * K + k0 + ak]);
    float4 b = *reinterpret_cast<const float4*>(&B[(bx * 128 + am) * K + k0 + ak]);
    As[am][ak] = a.x; As[am][ak + 1] = a.y; As[am][ak + 2] = a.z; As[am][ak + 3] = a.w;
    Bs[ak][am] = b.x; Bs[ak + 1][am] = b.y; Bs[ak + 2][am] = b.z; Bs[ak + 3][am] = b.w;
    __syncthreads();
    for (int k = 0; k < 8; ++k) {
      float ra[8], rb[8];
      for (int i = 0; i < 8; ++i) ra[i] = As[ty * 8 + i][k];
      for (int j = 0; j < 8; ++j) rb[j] = Bs[k][tx * 8 + j];
      for (int i = 0; i < 8; ++i) for (int j = 0; j < 8; ++j) acc[i][j] += ra[i] * rb[j];
    }
    __syncthreads();
  }
  for (int j = 0; j < 8; ++j) for (int i = 0; i < 8; i += 4) {
    float4 c = make_float4(acc[i][j], acc[i+1][j], acc[i+2][j], acc[i+3][j]);
    *reinterpret_cast<float4*>(&C[(bx * 128 + tx * 8 + j) * M + by * 128 + ty * 8 + i]) = c;
  }
}
