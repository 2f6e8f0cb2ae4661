// Sums and means, in f64 but for the result.
//
//   sum       y = sum of all elements                      a block of threads for each chunk of 16384 elements, then
//             one for their sums
//   sum_rows  y[r] = sum_i x[i, r]                         a block for each innermost row
//   mean      y[r] = sum_i x[i, r] / n
//   cumsum    y[j, r] = sum_{i <= j} x[i, r]
//
//   x  f32, any strides          y  f32, without gaps
//
// Element k of a row or chunk goes to thread k mod 256, then the threads of a warp are added in pairs, and then the
// warps one after the other.
#include "elements.cuh"

constexpr Index CHUNK = 1 << 14;

// Sum over the block, the same in each thread. `shared` holds a number for each warp and is free again behind it.
DEVICE double block_sum_f64(double x, double* shared) {
    for (int distance = WARP / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(ALL_LANES, x, distance);
    if (threadIdx.x % WARP == 0) shared[threadIdx.x / WARP] = x;
    __syncthreads();
    x = 0.0;
    for (int warp = 0; warp < (int)(blockDim.x / WARP); warp++) x += shared[warp];
    __syncthreads();
    return x;
}

DEVICE double row_sum(const View& x, double* shared) {
    const float* const row = cells<float>(x) + row_distance(x, blockIdx.x);
    double sum = 0.0;
    for (Index i = threadIdx.x; i < x.sizes[0]; i += blockDim.x) sum += (double)row[i * x.steps[0]];
    return block_sum_f64(sum, shared);
}

KERNEL(sum_rows_f32, View x, View y) {
    DYNAMIC_SHARED(double, shared);
    const double sum = row_sum(x, shared);
    if (threadIdx.x == 0) cells_to_write<float>(y)[blockIdx.x] = (float)sum;
}

KERNEL(mean_f32, View x, View y) {
    DYNAMIC_SHARED(double, shared);
    const double sum = row_sum(x, shared);
    if (threadIdx.x == 0) cells_to_write<float>(y)[blockIdx.x] = (float)(sum / (double)x.sizes[0]);
}

// The sum of each chunk, a number for each block.
KERNEL(sum_chunks_f32, View x, double* sums) {
    DYNAMIC_SHARED(double, shared);
    const Index first = (Index)blockIdx.x * CHUNK, all = elements(x);
    const Index end = first + CHUNK < all ? first + CHUNK : all;
    double sum = 0.0;
    for (Index i = first + threadIdx.x; i < end; i += blockDim.x) sum += (double)cells<float>(x)[distance_of(x, i)];
    sum = block_sum_f64(sum, shared);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// One block.
KERNEL(sum_of_chunks_f32, const double* sums, Index count, View y) {
    DYNAMIC_SHARED(double, shared);
    double sum = 0.0;
    for (Index i = threadIdx.x; i < count; i += blockDim.x) sum += sums[i];
    sum = block_sum_f64(sum, shared);
    if (threadIdx.x == 0) cells_to_write<float>(y)[0] = (float)sum;
}

// A row in pieces of as many elements as there are threads: within each, every thread adds what lies 1, 2, 4, ...
// threads before it. `shared` holds two numbers for each thread.
KERNEL(cumsum_f32, View x, View y) {
    DYNAMIC_SHARED(double, shared);
    const Index len = x.sizes[0];
    const int thread = threadIdx.x, threads = blockDim.x;
    const float* const source = cells<float>(x) + row_distance(x, blockIdx.x);
    float* const target = cells_to_write<float>(y) + (Index)blockIdx.x * len;
    double before = 0.0;
    for (Index first = 0; first < len; first += threads) {
        const Index i = first + thread;
        double* sums = shared;
        double* next = shared + threads;
        sums[thread] = i < len ? (double)source[i * x.steps[0]] : 0.0;
        __syncthreads();
        for (int distance = 1; distance < threads; distance *= 2) {
            next[thread] = thread < distance ? sums[thread] : sums[thread - distance] + sums[thread];
            __syncthreads();
            double* const last = sums;
            sums = next;
            next = last;
        }
        if (i < len) target[i] = (float)(before + sums[thread]);
        before += sums[threads - 1];
        __syncthreads();
    }
}
