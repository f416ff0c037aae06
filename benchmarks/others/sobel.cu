//! gemmlab block=16,16 grid=ceil_div(n,16),ceil_div(m,16) args=out:u8[m*n]=zeros,in:u8[m*n],m,n m=2048 n=2048

// Edges of an image of bytes: eight neighbours of each pixel from device memory.
extern "C" __global__ void sobel(unsigned char* out, const unsigned char* in, int m, int n) {
  const int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
  if (x < 1 || y < 1 || x >= n - 1 || y >= m - 1) return;
  const unsigned char* p = in + (size_t)y * n + x;
  const int across = p[1 - n] + 2 * p[1] + p[1 + n] - p[-1 - n] - 2 * p[-1] - p[-1 + n];
  const int down = p[n - 1] + 2 * p[n] + p[n + 1] - p[-n - 1] - 2 * p[-n] - p[-n + 1];
  const int sum = abs(across) + abs(down);
  out[(size_t)y * n + x] = sum > 255 ? 255 : sum;
}
