//! gemmlab block=256 grid=ceil_div(n*c,1024) args=out:f32[n*c]=zeros,tokens:i32[n]=zeros,wte:f32[50304*c],wpe:f32[1024*c],n,c n=32768 c=768

// A token's row of a table, and its position's, added: four words per thread.
extern "C" __global__ void
embedding(float4* out, const int* tokens, const float4* wte, const float4* wpe, int n, int c) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, row = i / (c / 4), column = i % (c / 4);
  if (row >= n) return;
  const float4 a = wte[(tokens[row] + row * 7 % 50304) * (c / 4) + column];
  const float4 b = wpe[row % 1024 * (c / 4) + column];
  out[i] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
