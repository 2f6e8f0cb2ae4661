// Barriers that are missing, or that not all threads reach. Each kernel with a fault has a twin, `right`, that computes
// what it should.
#include "device.cuh"

// y: x, turned over within each block.
DEVICE void turn(const float* x, float* y, bool barrier) {
    DYNAMIC_SHARED(float, shared);
    const int first = blockIdx.x * blockDim.x;
    shared[threadIdx.x] = x[first + threadIdx.x];
    if (barrier) __syncthreads();
    y[first + threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}
KERNEL(turn_right, const float* x, float* y, int) { turn(x, y, true); }
KERNEL(turn_without_barrier, const float* x, float* y, int) { turn(x, y, false); }

// As turn, with shared memory of a fixed size.
KERNEL(turn_fixed_without_barrier, const float* x, float* y, int) {
    __shared__ float shared[1024];
    const int first = blockIdx.x * blockDim.x;
    shared[threadIdx.x] = x[first + threadIdx.x];
    y[first + threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

// y: in each block, the sum over it of x, plus twice that of 2 x. Two sums take turns in the same shared memory.
DEVICE float sum_without_last_barrier(float x, float* shared) {
    x = warp_sum(x);
    const int warps = blockDim.x / WARP, lane = threadIdx.x % WARP;
    if (lane == 0) shared[threadIdx.x / WARP] = x;
    __syncthreads();
    return warp_sum(lane < warps ? shared[lane] : 0.0f);
}
KERNEL(sums_right, const float* x, float* y, int) {
    DYNAMIC_SHARED(float, shared);
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float first = block_sum(x[i], shared), second = block_sum(2.0f * x[i], shared);
    y[i] = first + 2.0f * second;
}
KERNEL(sums_without_last_barrier, const float* x, float* y, int) {
    DYNAMIC_SHARED(float, shared);
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float first = sum_without_last_barrier(x[i], shared), second = sum_without_last_barrier(2.0f * x[i], shared);
    y[i] = first + 2.0f * second;
}

// y: x of the neighbouring lane, by way of shared memory.
DEVICE void neighbour(const float* x, float* y, bool barrier) {
    DYNAMIC_SHARED(float, shared);
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    shared[threadIdx.x] = x[i];
    if (barrier) __syncwarp();
    y[i] = shared[threadIdx.x ^ 1];
}
KERNEL(neighbour_right, const float* x, float* y, int) { neighbour(x, y, true); }
KERNEL(neighbour_without_barrier, const float* x, float* y, int) { neighbour(x, y, false); }

KERNEL(barrier_after_return, const float* x, float* y, int) {
    if (threadIdx.x == 3) return;
    __syncthreads();
    y[threadIdx.x] = x[threadIdx.x];
}

// Lanes of one warp wait at a barrier for lanes that wait for them.
KERNEL(barrier_in_branch, const float* x, float* y, int) {
    float value = x[threadIdx.x];
    if (threadIdx.x % 2 == 0) {
        __syncthreads();
    } else {
        value = __shfl_xor_sync(ALL_LANES, value, 1);
    }
    y[threadIdx.x] = value;
}

KERNEL(different_barriers, const float* x, float* y, int) {
    y[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        y[threadIdx.x] = (float)__syncthreads_count(1);
    }
}
