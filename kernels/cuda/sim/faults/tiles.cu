// Instructions of ptx.cuh, to be compared with plain loops.
#include "ptx.cuh"

// c: a b for 16 x 32 bytes of a and 8 rows of 32 bytes, the columns of b; on top of what is there.
KERNEL(tile_s8, const signed char* a, const signed char* b, int* c) {
    const int g = threadIdx.x / 4, t = threadIdx.x % 4;
    const int *const rows = (const int*)a, *const columns = (const int*)b;
    const int left[4] = {rows[g * 8 + t], rows[(g + 8) * 8 + t], rows[g * 8 + 4 + t], rows[(g + 8) * 8 + 4 + t]};
    const int right[2] = {columns[g * 8 + t], columns[g * 8 + 4 + t]};
    int sums[4] = {c[g * 8 + 2 * t], c[g * 8 + 2 * t + 1], c[(g + 8) * 8 + 2 * t], c[(g + 8) * 8 + 2 * t + 1]};
    mma_m16n8k32_s8(sums, left, right);
    for (int i = 0; i < 4; i++) c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i];
}

// c: a b for 16 x 16 f16 of a and 16 x 8 of b, both by rows, by way of shared memory: b's tiles are transposed on the
// way.
KERNEL(tile_f16, const half* a, const half* b, float* c) {
    __shared__ __align__(16) half left[16 * 16];
    __shared__ __align__(16) half right[16 * 8];
    const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    copy_async_16(left + 8 * lane, a + 8 * lane);
    copy_async_commit();
    if (lane < 16) copy_async_16(right + 8 * lane, b + 8 * lane);
    copy_async_commit();
    copy_async_wait<0>();
    __syncwarp();
    unsigned rows[4], columns[2];
    load_matrices_x4(rows, left + lane % 16 * 16 + lane / 16 * 8);
    load_matrices_transposed_x2(columns, right + lane % 16 * 8);
    float sums[4] = {};
    mma_m16n8k16_f16(sums, rows, columns);
    for (int i = 0; i < 4; i++) c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i];
}

// y: in each block, x for those that are there, zeros for the last lane, through two groups of copies; the second is
// waited for or not.
DEVICE void through_shared(const float* all_x, float* all_y, bool all) {
    __shared__ __align__(16) float shared[2 * 4 * WARP];
    const int lane = threadIdx.x;
    const float* const x = all_x + blockIdx.x * 2 * 4 * WARP;
    float* const y = all_y + blockIdx.x * 2 * 4 * WARP;
    copy_async_16(shared + 4 * lane, x + 4 * lane, lane < WARP - 1);
    copy_async_commit();
    copy_async_16(shared + 4 * (WARP + lane), x + 4 * (WARP + lane));
    copy_async_commit();
    if (all) {
        copy_async_wait<0>();
    } else {
        copy_async_wait<1>();
    }
    __syncwarp();
    for (int i = lane; i < 2 * 4 * WARP; i += WARP) y[i] = shared[i];
}
KERNEL(copies_right, const float* x, float* y, int) { through_shared(x, y, true); }
KERNEL(copies_not_waited_for, const float* x, float* y, int) { through_shared(x, y, false); }

// y: in each block, x of the lane's neighbour, then of the same places further on, which are copied to where the first
// were when all have read them, or before that.
DEVICE void over_shared(const float* all_x, float* all_y, bool barrier) {
    __shared__ __align__(16) float shared[4 * WARP];
    const int lane = threadIdx.x, other = lane ^ 1;
    const float* const x = all_x + blockIdx.x * 2 * 4 * WARP;
    float* const y = all_y + blockIdx.x * 2 * 4 * WARP;
    for (int i = 0; i < 4; i++) shared[4 * lane + i] = x[4 * lane + i];
    __syncwarp();
    if (!barrier) copy_async_16(shared + 4 * lane, x + 4 * (WARP + lane));
    for (int i = 0; i < 4; i++) y[4 * other + i] = shared[4 * other + i];
    __syncwarp();
    if (barrier) copy_async_16(shared + 4 * lane, x + 4 * (WARP + lane));
    copy_async_commit();
    copy_async_wait<0>();
    for (int i = 0; i < 4; i++) y[4 * (WARP + lane) + i] = shared[4 * lane + i];
}
KERNEL(copies_over_right, const float* x, float* y, int) { over_shared(x, y, true); }
KERNEL(copies_over_what_is_read, const float* x, float* y, int) { over_shared(x, y, false); }

KERNEL(copies_not_aligned, const float* x, float* y, int) {
    __shared__ __align__(16) float shared[8];
    copy_async_16(shared, x + 1);
    copy_async_commit();
    copy_async_wait<0>();
    y[threadIdx.x] = shared[threadIdx.x % 4];
}
