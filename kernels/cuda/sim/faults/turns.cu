// Launches that begin while the one before runs: what they do before they have waited for it. Each fault has a twin,
// `turn_waited_for`.
#include "ptx.cuh"

// y: 2 x
KERNEL(turn_waited_for, const float* x, float* y, int n) {
    const int i = thread_number();
    prefetch(x);
    wait_for_turn();
    if (i < n) y[i] = 2.0f * x[i];
}

// Part of the block waits for its turn while the others wait at the barrier.
KERNEL(turn_behind_barrier, const float* x, float* y, int n) {
    const int i = thread_number();
    if (threadIdx.x % 2 == 0) wait_for_turn();
    __syncthreads();
    if (threadIdx.x % 2 == 1) wait_for_turn();
    if (i < n) y[i] = 2.0f * x[i];
}

KERNEL(turn_read_before, const float* x, float* y, int n) {
    const int i = thread_number();
    const float element = i < n ? x[i] : 0.0f;
    wait_for_turn();
    if (i < n) y[i] = 2.0f * element;
}

KERNEL(turn_written_before, const float* x, float* y, int n) {
    const int i = thread_number();
    if (i < n) y[i] = 0.0f;
    wait_for_turn();
    if (i < n) y[i] = 2.0f * x[i];
}

KERNEL(turn_not_waited_for, const float* x, float* y, int n) {
    const int i = thread_number();
    if (i < n) y[i] = 2.0f * x[i];
}

KERNEL(turn_waited_for_in_part, const float* x, float* y, int n) {
    const int i = thread_number();
    if (i >= n) return;
    wait_for_turn();
    y[i] = 2.0f * x[i];
}
