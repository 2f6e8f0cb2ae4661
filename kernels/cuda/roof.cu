// What a card can do at most, measured by kernels that do nothing else: `device/cuda/roof.rs` times them.
//
//   roof_read     all of an array, 16 bytes a load, four loads in flight            roof_copy     the same, written to
//                 another array
//   roof_floats   independent chains of f32 fused multiply-adds in registers        roof_codes    products of 8-bit
//                 codes added up in i32
//   roof_tiles_s8, roof_tiles_f16   the same by matrix units (roof_tiles.cu)
//
// What is computed goes to memory only where it is a number that it cannot be: the compiler has to compute it.
#include "roof.cuh"

// Loads of a thread before it looks at the first.
constexpr int LOADS = 4;

KERNEL(roof_read, const int4* source, Index words, int* found) {
    const Index threads = (Index)gridDim.x * blockDim.x;
    int mixed = 0;
    for (Index first = thread_number(); first < words; first += LOADS * threads) {
        int4 loaded[LOADS];
        for (int i = 0; i < LOADS; i++) loaded[i] = first + i * threads < words ? source[first + i * threads] : make_int4(0, 0, 0, 0);
        for (int i = 0; i < LOADS; i++) mixed ^= loaded[i].x ^ loaded[i].y ^ loaded[i].z ^ loaded[i].w;
    }
    if (mixed == NEVER) *found = mixed;
}

KERNEL(roof_copy, const int4* source, Index words, int4* target) {
    const Index threads = (Index)gridDim.x * blockDim.x;
    for (Index first = thread_number(); first < words; first += LOADS * threads) {
        int4 loaded[LOADS];
        for (int i = 0; i < LOADS; i++) loaded[i] = first + i * threads < words ? source[first + i * threads] : make_int4(0, 0, 0, 0);
        for (int i = 0; i < LOADS; i++) {
            if (first + i * threads < words) target[first + i * threads] = loaded[i];
        }
    }
}

KERNEL(roof_floats, int rounds, float factor, int* found) {
    float sums[CHAINS];
    for (int i = 0; i < CHAINS; i++) sums[i] = (float)(threadIdx.x + i);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < CHAINS; i++) sums[i] = fmaf(sums[i], factor, 1.0f);
    }
    float sum = 0.0f;
    for (int i = 0; i < CHAINS; i++) sum += sums[i];
    if (sum == (float)NEVER) *found = 1;
}

KERNEL(roof_codes, int rounds, int codes, int* found) {
    int sums[CHAINS];
    for (int i = 0; i < CHAINS; i++) sums[i] = (int)threadIdx.x + i;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < CHAINS; i++) sums[i] = __dp4a(sums[i], codes, sums[i]);
    }
    int sum = 0;
    for (int i = 0; i < CHAINS; i++) sum ^= sums[i];
    if (sum == NEVER) *found = sum;
}
