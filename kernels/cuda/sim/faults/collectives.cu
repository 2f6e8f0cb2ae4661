// Collectives of a warp with lanes that do not come, or with masks that are wrong.
#include "device.cuh"

// y: the sum over each warp.
KERNEL(warp_sum_right, const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float sum = warp_sum(i < n ? x[i] : 0.0f);
    if (i < n) y[i] = sum;
}
KERNEL(warp_sum_after_return, const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = warp_sum(x[i]);
}

// y: x of lane 0 of each half of the warp.
KERNEL(halves_right, const float* x, float* y, int) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % WARP;
    y[i] = __shfl_sync(lane < 16 ? 0xffffu : 0xffff0000u, x[i], lane < 16 ? 0 : 16);
}
KERNEL(halves_with_one_mask, const float* x, float* y, int) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % WARP;
    y[i] = __shfl_sync(0xffffu, x[i], lane < 16 ? 0 : 16);
}
KERNEL(halves_with_different_masks, const float* x, float* y, int) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % WARP;
    y[i] = __shfl_sync(lane < 16 ? ALL_LANES : 0xffff0000u, x[i], lane < 16 ? 0 : 16);
}
KERNEL(halves_of_each_other, const float* x, float* y, int) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % WARP;
    y[i] = __shfl_sync(lane < 16 ? 0xffffu : 0xffff0000u, x[i], lane < 16 ? 16 : 0);
}

KERNEL(different_collectives, const float* x, float* y, int) {
    const float value = x[threadIdx.x];
    if (threadIdx.x < 16) {
        y[threadIdx.x] = __shfl_sync(ALL_LANES, value, 0);
    } else {
        y[threadIdx.x] = (float)__any_sync(ALL_LANES, value > 0.0f);
    }
}

KERNEL(part_of_a_warp, const float* x, float* y, int) { y[threadIdx.x] = __shfl_sync(ALL_LANES, x[threadIdx.x], 0); }

KERNEL(trap, const float*, float*, int) {
    if (blockIdx.x == 1 && threadIdx.x == 5) __trap();
}

// y: of each warp, all that shuffles, votes and atomics are for, as a number that check.cpp computes too.
KERNEL(votes_right, const float* x, float* y, int) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % WARP;
    const float value = x[i];
    const unsigned odd = __ballot_sync(ALL_LANES, lane % 2);
    const int any = __any_sync(ALL_LANES, lane == 7), all = __all_sync(ALL_LANES, lane < 31);
    float sum = __shfl_up_sync(ALL_LANES, value, 3, 8) + 2.0f * __shfl_down_sync(ALL_LANES, value, 5, 16);
    sum += 4.0f * __shfl_sync(ALL_LANES, value, 9, 8) + 8.0f * __shfl_xor_sync(ALL_LANES, value, 5, 4);
    y[i] = sum + 16.0f * (float)(odd >> 28) + 512.0f * (float)any + 1024.0f * (float)all;
}

// y[0]: the sum over all threads of the grid; y[1]: the largest; y[2]: how many came.
KERNEL(atomics_right, const float* x, float* y, int) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&y[0], x[i]);
    atomicMax((int*)&y[1], __float_as_int(x[i]));
    unsigned* const count = (unsigned*)&y[2];
    for (unsigned before = *count;;) {
        const unsigned seen = atomicCAS(count, before, before + 1);
        if (seen == before) break;
        before = seen;
    }
}
