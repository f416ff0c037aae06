// Kernels whose machine code differs strongly from their PTX, each in one respect.

extern "C" {

__device__ __noinline__ float polynomial(float x, int degree) {
    float sum = 0;
    for (int i = 0; i < degree; i++) sum = sum * x + 1.0f;
    return sum;
}

__global__ void calls(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = polynomial(x[i], i % 7) + polynomial(x[i] * 2, i % 5);
}

__global__ void float_division(float* x, const float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = sqrtf(y[i]) / x[i] + 1.0f / y[i];
}

__global__ void integer_division(long long* x, const long long* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = y[i] / x[i];
}

__global__ void collatz(int* steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned v = i + 1;
    int count = 0;
    while (v != 1) {
        v = v & 1 ? 3 * v + 1 : v >> 1;
        count++;
    }
    steps[i] = count;
}

__global__ void jump_table(int* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int v = x[i];
    switch (v % 8) {
        case 0: v = v * 3 + 1; x[i + n] = v; break;
        case 1: v = v / 3; x[i + 2 * n] = v; break;
        case 2: v ^= 0x55; x[i + n] = 7; break;
        case 3: v = __popc(v); x[i + 3 * n] = v; break;
        case 4: v = v * v; x[i + n] = 4; break;
        case 5: v = -v; x[i + 2 * n] = 9; break;
        case 6: v = v + 100; x[i + n] = 12; break;
        default: v = 0; x[i + 5 * n] = v;
    }
    x[i] = v;
}

__global__ void grid_stride_sum(float* out, const float* in, int n) {
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sum += in[i];
    for (int step = 16; step; step >>= 1) sum += __shfl_down_sync(~0u, sum, step);
    __shared__ float of_warp[32];
    int t = threadIdx.x;
    if (t % 32 == 0) of_warp[t / 32] = sum;
    __syncthreads();
    if (t < 32) {
        sum = t < blockDim.x / 32 ? of_warp[t] : 0;
        for (int step = 16; step; step >>= 1) sum += __shfl_down_sync(~0u, sum, step);
        if (t == 0) atomicAdd(out, sum);
    }
}

__global__ void mandelbrot(int* rounds, int width, int height, int most) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    float cx = -2 + 3.0f * x / width, cy = -1 + 2.0f * y / height, a = 0, b = 0;
    int i;
    for (i = 0; i < most && a * a + b * b < 4; i++) {
        float next = a * a - b * b + cx;
        b = 2 * a * b + cy;
        a = next;
    }
    rounds[y * width + x] = i;
}

__global__ void __launch_bounds__(1024) spills(float* x, int n) {
    float r[96];
    int i = threadIdx.x;
    for (int j = 0; j < 96; j++) r[j] = x[i + j * n];
    for (int k = 0; k < n; k++)
        for (int j = 0; j < 96; j++) r[j] = r[j] * r[(j + 1) % 96] + x[k];
    for (int j = 0; j < 96; j++) x[i + j * n] = r[j];
}

__global__ void indexed_registers(float* x, const int* index, int n) {
    float r[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int j = 0; j < 32; j++) r[j] = x[i + j * n];
    float sum = 0;
    for (int k = 0; k < n; k++) sum += r[index[k] & 31];
    x[i] = sum;
}

__global__ void rolled(float* x, const float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
#pragma unroll 1
    for (int k = 0; k < n; k++) sum += y[k * 32 + i];
    x[i] = sum;
}

__global__ void bitonic_sort(int* x) {
    __shared__ int keys[512];
    int t = threadIdx.x;
    keys[t] = x[blockIdx.x * 512 + t];
    keys[t + 256] = x[blockIdx.x * 512 + t + 256];
    for (int size = 2; size <= 512; size *= 2)
        for (int stride = size / 2; stride; stride /= 2) {
            __syncthreads();
            int at = 2 * t - (t & (stride - 1));
            bool up = (at & size) == 0;
            int a = keys[at], b = keys[at + stride];
            if ((a > b) == up) {
                keys[at] = b;
                keys[at + stride] = a;
            }
        }
    __syncthreads();
    x[blockIdx.x * 512 + t] = keys[t];
    x[blockIdx.x * 512 + t + 256] = keys[t + 256];
}

__global__ void binary_search(int* found, const int* sorted, const int* wanted, int n, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    int low = 0, high = n - 1, at = -1;
    while (low <= high) {
        int middle = (low + high) / 2;
        if (sorted[middle] == wanted[i]) {
            at = middle;
            break;
        }
        if (sorted[middle] < wanted[i]) low = middle + 1;
        else high = middle - 1;
    }
    found[i] = at;
}

__global__ void nested_branches(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    for (int k = 0; k < i % 9; k++) {
        if (v > 0) {
            if (i & 1) v = v * 0.5f - x[(i + k) % n];
            else v -= 1.5f;
            if (v < -2) continue;
            v += x[(i * 7 + k) % n];
        } else {
            v = v * v - 0.25f;
            if (v > 3) break;
        }
    }
    x[i + n] = v;
}

__global__ void stencil(float* out, const float* in, int width, int height) {
    __shared__ float tile[18][34];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    for (int dy = threadIdx.y; dy < 18; dy += 16)
        for (int dx = threadIdx.x; dx < 34; dx += 32) {
            int gx = blockIdx.x * 32 + dx - 1, gy = blockIdx.y * 16 + dy - 1;
            bool inside = gx >= 0 && gx < width && gy >= 0 && gy < height;
            tile[dy][dx] = inside ? in[gy * width + gx] : 0;
        }
    __syncthreads();
    if (x >= width || y >= height) return;
    int c = threadIdx.x + 1, r = threadIdx.y + 1;
    out[y * width + x] = tile[r][c] * 0.5f + 0.125f * (tile[r - 1][c] + tile[r + 1][c] +
                                                       tile[r][c - 1] + tile[r][c + 1]);
}

__global__ void scan(float* x) {
    __shared__ float of_thread[256];
    int t = threadIdx.x;
    of_thread[t] = x[blockIdx.x * 256 + t];
    __syncthreads();
    for (int step = 1; step < 256; step *= 2) {
        float before = t >= step ? of_thread[t - step] : 0;
        __syncthreads();
        of_thread[t] += before;
        __syncthreads();
    }
    x[blockIdx.x * 256 + t] = of_thread[t];
}

__global__ void shared_float_atomics(float* out, const float* in, int n) {
    __shared__ float bins[16];
    if (threadIdx.x < 16) bins[threadIdx.x] = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[i % 16], in[i]);
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
}

__global__ void tiled_product(float* c, const float* a, const float* b, int m, int n, int k) {
    __shared__ float as[8][64], bs[8][64];
    int t = threadIdx.x, tx = t % 16, ty = t / 16;
    int row = blockIdx.y * 64, column = blockIdx.x * 64;
    float sums[4][4] = {};
    for (int start = 0; start < k; start += 8) {
        for (int i = t; i < 512; i += 256) {
            int r = row + i / 8, kk = start + i % 8;
            as[i % 8][i / 8] = r < m && kk < k ? a[r * k + kk] : 0;
            r = start + i / 64;
            int col = column + i % 64;
            bs[i / 64][i % 64] = r < k && col < n ? b[r * n + col] : 0;
        }
        __syncthreads();
        for (int kk = 0; kk < 8; kk++)
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) sums[i][j] += as[kk][ty * 4 + i] * bs[kk][tx * 4 + j];
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            int r = row + ty * 4 + i, col = column + tx * 4 + j;
            if (r < m && col < n) c[r * n + col] = sums[i][j];
        }
}

__global__ void ballots(int* out, const int* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned some = __ballot_sync(~0u, i < n && in[i] % 3 == 0);
    if (!some) return;
    int rank = __popc(some & ((1u << threadIdx.x % 32) - 1));
    if (some >> threadIdx.x % 32 & 1) out[i / 32 * 32 + rank] = in[i];
}

}
