// What all kernels share: how tensors reach them, elements of each type, sums over warps and blocks.
//
// Each .cu file is compiled twice: by NVRTC for cards, with `--fmad=false`, and by the host's compiler for the
// simulator, with KERNEL_SIM (sim/emulation.h). Both give the same bits but for functions like exp, which have the
// errors that profiles declare. Rules for kernels:
//
//   KERNEL(name, arguments)            declares one; a template has an instance for each type
//   BOUNDED_KERNEL(threads, blocks, name, arguments)   the same, for so many threads a block, of which a processor
//                                                      holds so many blocks
//   LIMITED_KERNEL(registers, name, arguments)         the same, with so many registers a thread at most
//   DYNAMIC_SHARED(T, name)            the shared memory that a launch asks for
//   collectives only as *_sync         all lanes of a warp take part, none has returned before
//   fused multiply-add only as fmaf    the compiler makes none by itself
//   no inline PTX outside of ptx.cuh   each wrapper there has a plain body for the simulator
#pragma once

#if defined(KERNEL_SIM)
#include "sim/emulation.h"
#define BOUNDED_KERNEL(threads, blocks, name, ...) KERNEL(name, __VA_ARGS__)
#define LIMITED_KERNEL(registers, name, ...) KERNEL(name, __VA_ARGS__)
#else
#include <cuda_fp16.h>
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#endif
#define KERNEL(name, ...) extern "C" __global__ void name(__VA_ARGS__)
#define BOUNDED_KERNEL(threads, blocks, name, ...) extern "C" __global__ void __launch_bounds__(threads, blocks) name(__VA_ARGS__)
#define LIMITED_KERNEL(registers, name, ...) extern "C" __global__ void __maxnreg__(registers) name(__VA_ARGS__)
#define DYNAMIC_SHARED(T, name)                                      \
    extern __shared__ __align__(16) unsigned char name##_bytes[];    \
    T* const name = reinterpret_cast<T*>(name##_bytes)
#endif

#define DEVICE static __device__ __forceinline__

typedef long long Index;

constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;

// A tensor: sizes innermost first, and the distance of neighbours in elements. Blocks lie behind each other within a
// row (steps[0] is 1), and rows begin at whole blocks. The host passes the same layout (`View` of the device's
// arguments).
struct View {
    unsigned char* data;
    Index sizes[4];
    Index steps[4];
};

struct Place {
    Index i[4];
};

DEVICE Index elements(const View& view) {
    return view.sizes[0] * view.sizes[1] * view.sizes[2] * view.sizes[3];
}

// Indices of element number `element` in order.
DEVICE Place place_of(const View& view, Index element) {
    Place place;
    for (int d = 0; d < 3; d++) {
        place.i[d] = element % view.sizes[d];
        element /= view.sizes[d];
    }
    place.i[3] = element;
    return place;
}

// How many elements behind the first an element lies.
DEVICE Index distance(const View& view, const Place& place) {
    Index distance = 0;
    for (int d = 0; d < 4; d++) distance += place.i[d] * view.steps[d];
    return distance;
}

// How many elements behind the first row number `row` begins, counted over all dimensions but the innermost.
DEVICE Index row_distance(const View& view, Index row) {
    const Index i1 = row % view.sizes[1], i2 = row / view.sizes[1] % view.sizes[2], i3 = row / view.sizes[1] / view.sizes[2];
    return i1 * view.steps[1] + i2 * view.steps[2] + i3 * view.steps[3];
}

// The same place in a tensor that is repeated to a larger one.
DEVICE Place repeated(const View& view, const Place& place) {
    Place own;
    for (int d = 0; d < 4; d++) own.i[d] = place.i[d] % view.sizes[d];
    return own;
}

template <class T>
DEVICE const T* cells(const View& view) {
    return reinterpret_cast<const T*>(view.data);
}

template <class T>
DEVICE T* cells_to_write(const View& view) {
    return reinterpret_cast<T*>(view.data);
}

// bf16 by its bits: the upper half of an f32.
struct Bf16 {
    unsigned short bits;
};

DEVICE float to_float(float x) { return x; }
DEVICE float to_float(half x) { return __half2float(x); }
DEVICE float to_float(Bf16 x) { return __int_as_float((int)((unsigned)x.bits << 16)); }

template <class T>
DEVICE T from_float(float x);

template <>
__device__ __forceinline__ float from_float<float>(float x) { return x; }

template <>
__device__ __forceinline__ half from_float<half>(float x) { return __float2half_rn(x); }

// To the nearest, halves to even; NaN stays one.
template <>
__device__ __forceinline__ Bf16 from_float<Bf16>(float x) {
    const unsigned bits = (unsigned)__float_as_int(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return Bf16{(unsigned short)(bits >> 16 | 64)};
    return Bf16{(unsigned short)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16)};
}

// The number of this thread in a one-dimensional grid.
DEVICE Index thread_number() {
    return (Index)blockIdx.x * blockDim.x + threadIdx.x;
}

// Sum over the warp, the same in each lane: lanes at distances 16, 8, 4, 2, 1.
DEVICE float warp_sum(float x) {
    for (int distance = WARP / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(ALL_LANES, x, distance);
    return x;
}

DEVICE float warp_max(float x) {
    for (int distance = WARP / 2; distance > 0; distance /= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, distance));
    return x;
}

// Sum over a one-dimensional block of whole warps, the same in each thread. `shared` holds a number for each warp and
// is free again behind it.
DEVICE float block_sum(float x, float* shared) {
    x = warp_sum(x);
    const int warps = blockDim.x / WARP, lane = threadIdx.x % WARP;
    if (lane == 0) shared[threadIdx.x / WARP] = x;
    __syncthreads();
    x = warp_sum(lane < warps ? shared[lane] : 0.0f);
    __syncthreads();
    return x;
}

// As block_sum, the largest.
DEVICE float block_max(float x, float* shared) {
    x = warp_max(x);
    const int warps = blockDim.x / WARP, lane = threadIdx.x % WARP;
    if (lane == 0) shared[threadIdx.x / WARP] = x;
    __syncthreads();
    x = warp_max(lane < warps ? shared[lane] : -INFINITY);
    __syncthreads();
    return x;
}

// What a kernel tells the host of an index that lies outside of its tensor: the host reads it behind the launch and
// fails.
struct Fault {
    int happened;
    int index;
    int len;
};

// Whether `index` lies within `len`; else it is told.
DEVICE bool lies_within(Index index, Index len, Fault* fault) {
    if (index >= 0 && index < len) return true;
    fault->index = (int)index;
    fault->len = (int)len;
    fault->happened = 1;
    return false;
}
