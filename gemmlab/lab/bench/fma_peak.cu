// Measures the float32 peak at the clock that the machine sustains. Each thread runs eight
// independent chains of FMAs in registers, so only the FMA pipe limits the rate.
extern "C" __global__ void fma_peak(float *out, float a, float b, int rounds)
{
    float x[8];
    #pragma unroll
    for (int i = 0; i < 8; ++i)
        x[i] = threadIdx.x + i;
    for (int round = 0; round < rounds; ++round) {
        #pragma unroll
        for (int step = 0; step < 16; ++step) {
            #pragma unroll
            for (int i = 0; i < 8; ++i)
                x[i] = fmaf(x[i], a, b);
        }
    }
    float sum = 0;
    #pragma unroll
    for (int i = 0; i < 8; ++i)
        sum += x[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
