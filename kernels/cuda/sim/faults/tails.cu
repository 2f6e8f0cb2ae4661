// What the last block of threads to be done does with what all wrote, and a twin in which the first one does it.
#include "tail.cuh"

static __device__ unsigned right_count, early_count;

// y: 2 x, and behind it the same turned over, by one block.
DEVICE void double_all(const float* x, float* y) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = 2.0f * x[i];
}

DEVICE void turn_all(float* y) {
    const unsigned all = gridDim.x * blockDim.x;
    for (unsigned i = threadIdx.x; i < all; i += blockDim.x) y[all + i] = load_written(y + (all - 1 - i));
}

KERNEL(tail_right, const float* x, float* y, int) {
    double_all(x, y);
    if (is_last_block(&right_count, gridDim.x)) turn_all(y);
}

KERNEL(tail_before_the_count, const float* x, float* y, int) {
    double_all(x, y);
    __syncthreads();
    const bool early = threadIdx.x == 0 && atomicInc(&early_count, gridDim.x - 1) == 0;
    if (__syncthreads_or(early)) turn_all(y);
}
