// One warp, one access. The indices select each lane's element; a negative index disables the lane.
#include <cstdint>
using u64 = unsigned long long;

constexpr int SIZE = 1024;  // elements that the indices can address

#define OF_TYPE(name, T)                                                              \
    extern "C" __global__ void global_ld_##name(const int* at, T* out, const T* in) { \
        int i = at[threadIdx.x];                                                      \
        if (i >= 0) out[threadIdx.x] = in[i];                                         \
    }                                                                                 \
    extern "C" __global__ void global_st_##name(const int* at, T* out) {              \
        int i = at[threadIdx.x];                                                      \
        if (i >= 0) out[i] = T();                                                     \
    }                                                                                 \
    extern "C" __global__ void shared_ld_##name(const int* at, T* out) {              \
        __shared__ T s[SIZE];                                                         \
        s[threadIdx.x] = T();          \
        __syncwarp();                                                                 \
        int i = at[threadIdx.x];                                                      \
        if (i >= 0) out[threadIdx.x] = s[i];                                          \
    }                                                                                 \
    extern "C" __global__ void shared_st_##name(const int* at, T* out) {              \
        __shared__ T s[SIZE];                                                         \
        int i = at[threadIdx.x];                                                      \
        s[threadIdx.x] = T();                                                         \
        __syncwarp();                                                                 \
        if (i >= 0) s[i] = T();                                                       \
        __syncwarp();                                                                 \
        out[threadIdx.x] = s[threadIdx.x];                                            \
    }
OF_TYPE(b8, uint8_t)
OF_TYPE(b16, uint16_t)
OF_TYPE(b32, unsigned)
OF_TYPE(b64, uint2)
OF_TYPE(b128, uint4)

// Local memory. The first store is to the address that the index selects.
#define LOCAL(name, T)                                                                \
    extern "C" __global__ void local_##name(const int* at, T* out) {                  \
        T own[32];                                                                    \
        int i = at[threadIdx.x];                                                      \
        if (i >= 0) {                                                                 \
            own[i % 32] = out[threadIdx.x];                                           \
            own[(i + 1) % 32] = out[threadIdx.x + 32];                                \
            out[threadIdx.x] = own[i % 32];                                           \
        }                                                                             \
    }
LOCAL(b32, unsigned)
LOCAL(b64, uint2)
LOCAL(b128, uint4)

#define ATOMIC(name, T)                                                               \
    extern "C" __global__ void global_red_##name(const int* at, T* out) {             \
        int i = at[threadIdx.x];                                                      \
        if (i >= 0) atomicAdd(out + i, T(1));                                         \
    }                                                                                 \
    extern "C" __global__ void global_atom_##name(const int* at, T* out, T* old) {    \
        int i = at[threadIdx.x];                                                      \
        if (i >= 0) old[threadIdx.x] = atomicAdd(out + i, T(1));                      \
    }
ATOMIC(b32, unsigned)
ATOMIC(b64, u64)

#define REDUCTION(name, T, text, ...)                                                 \
    extern "C" __global__ void global_red_##name(const int* at, T* out) {             \
        int i = at[threadIdx.x];                                                      \
        if (i >= 0) asm volatile(text ::"l"(out + i), __VA_ARGS__ : "memory");        \
    }
REDUCTION(f16x2, unsigned, "red.global.add.noftz.f16x2 [%0], %1;", "r"(0))
REDUCTION(v4_f32, uint4, "red.global.add.v4.f32 [%0], {%1, %1, %1, %1};", "f"(1.0f))

extern "C" __global__ void shared_atom_b32(const int* at, unsigned* out) {
    __shared__ unsigned s[SIZE];
    s[threadIdx.x] = 0;
    __syncwarp();
    int i = at[threadIdx.x];
    if (i >= 0) atomicAdd(s + i, 1u);
    __syncwarp();
    out[threadIdx.x] = s[threadIdx.x];
}

__device__ unsigned address(const void* shared) { return __cvta_generic_to_shared(shared); }

// Asynchronous copies. The indices select the source (`ld`) or target (`st`). `cg` bypasses L1.
#define COPY(name, cache, T, from, to)                                                \
    extern "C" __global__ void name(const int* at, T* out, const T* in) {             \
        __shared__ T s[SIZE];                                                         \
        int i = at[threadIdx.x], lane = threadIdx.x;                                  \
        s[lane] = T();                                                                \
        __syncwarp();                                                                 \
        if (i >= 0)                                                                   \
            asm volatile("cp.async." #cache ".shared.global [%0], [%1], %2;"          \
                         ::"r"(address(s + to)), "l"(in + from), "n"(sizeof(T)) : "memory"); \
        asm volatile("cp.async.wait_all;" ::: "memory");                              \
        __syncwarp();                                                                 \
        out[lane] = s[lane];                                                          \
    }
COPY(copy_ld_b32, ca, unsigned, i, lane)
COPY(copy_ld_b64, ca, uint2, i, lane)
COPY(copy_ld_b128, ca, uint4, i, lane)
COPY(copy_cg_ld_b128, cg, uint4, i, lane)
COPY(copy_st_b32, ca, unsigned, lane, i)
COPY(copy_st_b64, ca, uint2, lane, i)
COPY(copy_st_b128, ca, uint4, lane, i)
COPY(copy_cg_st_b128, cg, uint4, lane, i)

// Matrices of 8 rows of 16 bytes. The indices select the rows. Every lane takes part.
#define MATRICES(number, registers)                                                   \
    extern "C" __global__ void ldmatrix_##number(const int* at, unsigned* out) {      \
        __shared__ uint4 s[SIZE];                                                     \
        s[threadIdx.x] = uint4();          \
        __syncwarp();                                                                 \
        unsigned row = address(s + max(at[threadIdx.x], 0)), a = 0, b = 0, c = 0, d = 0; \
        asm volatile("ldmatrix.sync.aligned.m8n8." #number ".shared.b16 {" registers "}, [%4];" \
                     : "+r"(a), "+r"(b), "+r"(c), "+r"(d) : "r"(row) : "memory");     \
        out[threadIdx.x] = a + b + c + d;                                             \
    }                                                                                 \
    extern "C" __global__ void stmatrix_##number(const int* at, unsigned* out) {      \
        __shared__ uint4 s[SIZE];                                                     \
        unsigned row = address(s + max(at[threadIdx.x], 0)), a = threadIdx.x;         \
        s[threadIdx.x] = uint4();                                                     \
        __syncwarp();                                                                 \
        asm volatile("stmatrix.sync.aligned.m8n8." #number ".shared.b16 [%4], {" registers "};" \
                     ::"r"(a), "r"(a), "r"(a), "r"(a), "r"(row) : "memory");          \
        __syncwarp();                                                                 \
        out[threadIdx.x] = s[threadIdx.x].x;                                          \
    }
MATRICES(x1, "%0")
MATRICES(x2, "%0, %1")
MATRICES(x4, "%0, %1, %2, %3")
