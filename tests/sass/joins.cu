// Adjacent accesses in CUDA C++; the machine code shows which of them ptxas joins.

#define KERNEL(name) extern "C" __global__ void __launch_bounds__(256) name(float *x, int n)
#define T ((int)threadIdx.x)

// The words of a float4: contiguous, in a column, and alternating between both.
KERNEL(staged_in_turn) {
  __shared__ float rows[256][8], columns[8][256];
  float4 v = reinterpret_cast<float4 *>(x)[T];
  rows[T][0] = v.x, columns[0][T] = v.x;
  rows[T][1] = v.y, columns[1][T] = v.y;
  rows[T][2] = v.z, columns[2][T] = v.z;
  rows[T][3] = v.w, columns[3][T] = v.w;
  __syncthreads();
  x[T] = rows[n & 255][T & 3] + columns[T & 3][n & 255];
}

KERNEL(staged_by_a_loop) {
  __shared__ float rows[256][8];
  float v[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = x[T + 256 * i];
#pragma unroll
  for (int i = 0; i < 8; ++i) rows[T][i] = v[i] * 2;
  __syncthreads();
  x[T] = rows[n & 255][T & 7];
}

KERNEL(copied_in_a_loop) {
  __shared__ float rows[256][8];
#pragma unroll
  for (int i = 0; i < 8; ++i) rows[T][i] = x[T + 256 * i];
  __syncthreads();
  x[T] = rows[n & 255][T & 7];
}

KERNEL(padded_rows) {
  __shared__ float odd[64][5], even[64][6], fours[64][12];
  float4 v = reinterpret_cast<float4 *>(x)[T];
  int t = T & 63;
  odd[t][0] = v.x, odd[t][1] = v.y, odd[t][2] = v.z, odd[t][3] = v.w;
  even[t][0] = v.x, even[t][1] = v.y, even[t][2] = v.z, even[t][3] = v.w;
  fours[t][0] = v.x, fours[t][1] = v.y, fours[t][2] = v.z, fours[t][3] = v.w;
  __syncthreads();
  x[T] = odd[n & 63][T & 3] + even[n & 63][T & 3] + fours[n & 63][T & 3];
}

KERNEL(loads_of_tiles) {
  __shared__ float a[16][64], b[16][64];
  a[T / 16][T % 16] = x[T], b[T / 16][T % 16] = x[T + 256];
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int k = 0; k < 16; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) sum += a[k][T % 16 * 4 + i] * b[k][T / 16 * 4 + i];
  x[T] = sum;
}

// Adjacent variables.
KERNEL(variables) {
  __shared__ float mean, deviation;
  __shared__ int count, last;
  if (T == 0) {
    mean = x[0], deviation = x[1];
    count = n, last = n + 1;
  }
  __syncthreads();
  x[T] = (x[T] - mean) * deviation + count * last;
}

KERNEL(odd_sizes) {
  __shared__ float three[3], many[61], more[64];
  float u = x[T], v = x[T + 256], w = x[T + 512];
  __syncthreads();
  three[2] = u, many[0] = v, more[0] = w, more[1] = u;
  __syncthreads();
  x[T] = three[n & 1] + many[T & 31] + more[T & 31];
}

KERNEL(dynamic) {
  extern __shared__ char bytes[];
  float *floats = reinterpret_cast<float *>(bytes);
  float4 v = reinterpret_cast<float4 *>(x)[T];
  floats[4 * T] = v.x, floats[4 * T + 1] = v.y, floats[4 * T + 2] = v.z, floats[4 * T + 3] = v.w;
  __syncthreads();
  x[T] = floats[n] + floats[n + 1];
}

struct Body {
  float x, y, z, mass;
};

KERNEL(structs) {
  __shared__ Body bodies[256];
  bodies[T].x = x[T], bodies[T].y = x[T + 256], bodies[T].z = x[T + 512], bodies[T].mass = n;
  __syncthreads();
  float sum = 0;
#pragma unroll 1
  for (int i = 0; i < n; ++i) {
    Body b = bodies[i];
    sum += b.mass * (b.x * b.x + b.y * b.y + b.z * b.z);
  }
  x[T] = sum;
}

KERNEL(doubles) {
  __shared__ double pairs[256][2];
  double *in = reinterpret_cast<double *>(x);
  double u = in[T], v = in[T + 256];
  pairs[T][0] = u, pairs[T][1] = v;
  __syncthreads();
  in[T] = pairs[n][0] * pairs[n][1];
}

KERNEL(shorts) {
  __shared__ short four[256][4], bytes[256];
  short *in = reinterpret_cast<short *>(x);
  short a = in[T], b = in[T + 256], c = in[T + 512], d = in[T + 768];
  four[T][0] = a, four[T][1] = b, four[T][2] = c, four[T][3] = d, bytes[T] = a;
  __syncthreads();
  in[T] = four[n & 255][T & 3] + bytes[n & 255];
}

KERNEL(chars) {
  __shared__ char four[256][4];
  char *in = reinterpret_cast<char *>(x);
  char a = in[T], b = in[T + 256], c = in[T + 512], d = in[T + 768];
  four[T][0] = a, four[T][1] = b, four[T][2] = c, four[T][3] = d;
  __syncthreads();
  in[T] = four[n & 255][T & 3];
}

KERNEL(volatiles) {
  __shared__ volatile float rows[256][4];
  float4 v = reinterpret_cast<float4 *>(x)[T];
  rows[T][0] = v.x, rows[T][1] = v.y, rows[T][2] = v.z, rows[T][3] = v.w;
  __syncthreads();
  x[T] = rows[n & 255][0] + rows[n & 255][1];
}

KERNEL(guarded) {
  __shared__ float rows[256][4];
  float4 v = reinterpret_cast<float4 *>(x)[T];
  if (T < n) rows[T][0] = v.x, rows[T][1] = v.y, rows[T][2] = v.z, rows[T][3] = v.w;
  __syncthreads();
  x[T] = rows[n & 255][T & 3];
}

// Each store may alias a later load.
KERNEL(may_alias) {
  __shared__ float rows[256][4];
  float4 v = reinterpret_cast<float4 *>(x)[T];
  rows[T][0] = v.x, rows[T][1] = v.y;
  float w = rows[n & 255][2];
  rows[T][2] = v.z, rows[T][3] = w;
  __syncthreads();
  x[T] = rows[n & 255][T & 3];
}

__device__ float plain[1024];
__device__ __align__(16) float aligned[1024];

KERNEL(device_variables) {
  float4 v = reinterpret_cast<float4 *>(x)[T];
  plain[4 * T] = v.x, plain[4 * T + 1] = v.y, plain[4 * T + 2] = v.z, plain[4 * T + 3] = v.w;
  aligned[4 * T] = v.x, aligned[4 * T + 1] = v.y, aligned[4 * T + 2] = v.z, aligned[4 * T + 3] = v.w;
  x[T] = n;
}

KERNEL(pointers) {
  float u = x[4 * T], v = x[4 * T + 1];
  x[4 * T] = v, x[4 * T + 1] = u, x[4 * T + 2] = n;
}

KERNEL(local_array) {
  float v[12];
#pragma unroll
  for (int i = 0; i < 12; ++i) v[i] = x[T + i * n];
  v[n] = 3;
  float sum = 0;
#pragma unroll 1
  for (int i = 0; i < n; ++i) sum += v[i * i];
  x[T] = sum + v[4] * v[5] + v[6] * v[7];
}
