//! gemmlab block=256 grid=4
//! gemmlab args=sum:i32[1]=zeros,rest:i32[1]=zeros,least:i32[1]=ones,most:i32[1]=zeros,up:u32[1]=zeros,down:u32[1]=zeros,common:i32[1]=ones,any:i32[1]=zeros,odd:i32[1]=zeros,last:i32[1]=zeros,first:i32[1]=zeros

// Each of the 1,024 threads, with number i, updates the same numbers.
extern "C" __global__ void atomics(int* sum, int* rest, int* least, int* most, unsigned* up,
                                   unsigned* down, int* common, int* any, int* odd, int* last,
                                   int* first) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(sum, i);
  atomicSub(rest, i);
  atomicMin(least, -i);
  atomicMax(most, i);
  atomicInc(up, 999);    // one more; 0 after 999
  atomicDec(down, 999);  // one less; 999 after 0
  atomicAnd(common, i);
  atomicOr(any, i);
  atomicXor(odd, i);
  atomicExch(last, i);          // i replaces what is there
  atomicCAS(first, 0, i + 1);   // i + 1 replaces 0, nothing else
}
