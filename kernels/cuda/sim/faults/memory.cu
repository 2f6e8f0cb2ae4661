// Memory that is not the kernel's own.
#include "device.cuh"

// y: 2 x, of n elements.
KERNEL(twice_right, const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
KERNEL(twice_one_too_many, const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) y[i] = 2.0f * x[i < n ? i : 0];
}
KERNEL(twice_one_before, const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i - 1] = 2.0f * x[i];
}
// The rows of y are not as far apart.
KERNEL(twice_with_wrong_stride, const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[blockIdx.x * 4096 + threadIdx.x] = 2.0f * x[i];
}
KERNEL(twice_reads_behind, const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i + 1024];
}
// Nobody touches what is not his, but the last element is not written.
KERNEL(twice_without_tail, const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n - 1) y[i] = 2.0f * x[i];
}
KERNEL(twice_of_nothing, const float* x, float* y, int n) {
    const float* const from = n == 32 ? nullptr : x;
    y[threadIdx.x] = 2.0f * *(const volatile float*)from;
}

// 16 bytes from an address that is no multiple of 16.
KERNEL(four_not_aligned, const float* x, float* y, int) {
    const float4 four = *reinterpret_cast<const float4*>(x + 1);
    y[threadIdx.x] = four.x + four.y + four.z + four.w;
}

// y: x, by way of dynamic shared memory for a number more than there are.
KERNEL(shared_too_small, const float* x, float* y, int) {
    DYNAMIC_SHARED(float, shared);
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    shared[threadIdx.x + 1] = x[i];
    y[i] = shared[threadIdx.x + 1];
}

KERNEL(divides_by_zero, const float* x, float* y, int n) { y[threadIdx.x] = x[(int)threadIdx.x / (n - (int)(blockDim.x * gridDim.x))]; }

KERNEL(too_many_variables, const float* x, float* y, int n) {
    volatile float numbers[65536];
    for (int i = 0; i < n; i++) numbers[i * 97 % 65536] = x[i];
    y[threadIdx.x] = numbers[threadIdx.x];
}
