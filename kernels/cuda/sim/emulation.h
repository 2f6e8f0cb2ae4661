// What CUDA C++ gives to kernels, for the host's compiler: the simulator's side of device.cuh. Kernels run by
// driver.cpp, the stand-in for the driver library; how lanes wait for each other is in lanes.h.
//
//   KERNEL(add_f32, View x, View y) { ... }     is listed under its name, with its arguments, where the library is
//                                               loaded
//
// Stricter than a card: who is named by a mask must come, at the same collective, and all threads must reach a barrier.
// Shared memory begins as 0xff, as fresh memory does.
#pragma once

#include <math.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "half.h"
#include "lanes.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __constant__ static const
// Blocks of one OS thread follow each other.
#define __shared__ static thread_local

#define threadIdx (sim::lane().thread)
#define blockIdx (sim::lane().block->index)
#define blockDim (sim::lane().block->size)
#define gridDim (sim::lane().block->grid)
constexpr int warpSize = sim::LANES;

#define DYNAMIC_SHARED(T, name) T* const name = reinterpret_cast<T*>(sim::lane().block->dynamic_shared)

#define KERNEL(name, ...)                                                        \
    static void name(__VA_ARGS__);                                               \
    static const sim::Listed<&name> name##_listed{#name};                        \
    static void name(__VA_ARGS__)

namespace sim {

template <auto function, class Type = decltype(function)>
struct Listed;

// Lists a kernel; `run` is a loop over threads with the kernel's body in it.
template <auto function, class... Arguments>
struct Listed<function, void (*)(Arguments...)> {
    static_assert((std::is_trivially_copyable_v<Arguments> && ...), "arguments of kernels are copied byte by byte");

    struct Places {
        size_t sizes[sizeof...(Arguments) + 1] = {sizeof(Arguments)...};
        size_t begins[sizeof...(Arguments) + 1] = {};
        constexpr Places() {
            const size_t aligns[] = {alignof(Arguments)..., 16};
            for (size_t i = 0, end = 0; i <= sizeof...(Arguments); i++) {
                begins[i] = (end + aligns[i] - 1) / aligns[i] * aligns[i];
                end = begins[i] + sizes[i];
            }
        }
    };
    static constexpr Places places{};

    template <size_t... I>
    static void run_with([[maybe_unused]] const unsigned char* arguments, std::index_sequence<I...>) {
        while (begin_thread()) {
            function(*reinterpret_cast<const Arguments*>(arguments + places.begins[I])...);
            end_thread();
        }
    }

    static void run(const unsigned char* arguments) { run_with(arguments, std::index_sequence_for<Arguments...>{}); }

    explicit Listed(const char* name) {
        static Kernel kernel{name, places.sizes, places.begins, sizeof...(Arguments), places.begins[sizeof...(Arguments)], run, nullptr};
        add_kernel(kernel);
    }
};

// As `meet`, with typed operands: compute(operands, mask).
template <class Operand, void (*compute)(Operand* const*, unsigned)>
inline void meet_with(const char* collective, unsigned mask, Operand& operand) {
    meet(collective, mask, &operand, [](void* const* operands, unsigned lanes) { compute(reinterpret_cast<Operand* const*>(operands), lanes); });
}

template <class T>
struct Shuffled {
    T value;
    T result;
    unsigned source;
};

template <class T>
void shuffle_all(Shuffled<T>* const* lanes, unsigned mask) {
    for (unsigned l = 0; l < LANES; l++) {
        if (mask >> l & 1) lanes[l]->result = lanes[lanes[l]->source]->value;
    }
}

// The value of lane `source`; its own where the source lies outside of its segment, which callers decide.
template <class T>
T shuffle(const char* collective, unsigned mask, T value, unsigned source) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8, "cards shuffle numbers of at most 8 bytes");
    if (!(mask >> source & 1)) fail("takes the value of a lane that its mask does not name");
    Shuffled<T> operand{value, value, source};
    meet_with<Shuffled<T>, shuffle_all<T>>(collective, mask, operand);
    return operand.result;
}

inline unsigned lane_number() { return lane().number % LANES; }

inline unsigned segment_size(int width) {
    if (width < 1 || width > (int)LANES || (width & (width - 1))) fail("shuffles in segments whose width is no power of two up to 32");
    return (unsigned)width;
}

struct Counted {
    unsigned value;
    unsigned result;
};

inline void ballot_all(Counted* const* lanes, unsigned mask) {
    unsigned ballot = 0;
    for (unsigned l = 0; l < LANES; l++) {
        if (mask >> l & 1 && lanes[l]->value) ballot |= 1u << l;
    }
    for (unsigned l = 0; l < LANES; l++) {
        if (mask >> l & 1) lanes[l]->result = ballot;
    }
}

inline unsigned ballot(const char* collective, unsigned mask, bool value) {
    Counted operand{value, 0};
    meet_with<Counted, ballot_all>(collective, mask, operand);
    return operand.result;
}

inline void no_operand(void* const*, unsigned) {}

// Replaces a number by `change` of it, all at once; what was there before.
template <class T, class Change>
T atomically(T* place, Change change) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "atomics are of 4 or 8 bytes");
    T before, after;
    __atomic_load(place, &before, __ATOMIC_RELAXED);
    do {
        after = change(before);
    } while (!__atomic_compare_exchange(place, &before, &after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return before;
}

// As cards do: NaN is 0, what is too large the largest.
inline int float_to_int(float x) {
    if (x != x) return 0;
    if (x >= 0x1p31f) return INT32_MAX;
    return x < -0x1p31f ? INT32_MIN : (int)x;
}

template <class To, class From>
To bits_as(From value) {
    static_assert(sizeof(To) == sizeof(From));
    To bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

}  // namespace sim

// Barriers and collectives.
inline void __syncthreads() { sim::meet_block("__syncthreads", 0); }
inline int __syncthreads_count(int predicate) { return (int)sim::meet_block("__syncthreads_count", predicate != 0); }
inline int __syncthreads_or(int predicate) { return sim::meet_block("__syncthreads_or", predicate != 0) != 0; }
inline int __syncthreads_and(int predicate) { return sim::meet_block("__syncthreads_and", predicate == 0) == 0; }
inline void __syncwarp(unsigned mask = 0xffffffffu) { sim::meet("__syncwarp", mask, nullptr, sim::no_operand); }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() {}
[[noreturn]] inline void __trap() { sim::fail("__trap was called"); }

inline unsigned __ballot_sync(unsigned mask, int predicate) { return sim::ballot("__ballot_sync", mask, predicate != 0); }
inline int __any_sync(unsigned mask, int predicate) { return sim::ballot("__any_sync", mask, predicate != 0) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return sim::ballot("__all_sync", mask, predicate != 0) == mask; }

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
    const unsigned segment = sim::segment_size(width), own = sim::lane_number();
    return sim::shuffle("__shfl_sync", mask, value, own / segment * segment + (unsigned)source % segment);
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32) {
    const unsigned segment = sim::segment_size(width), own = sim::lane_number();
    return sim::shuffle("__shfl_up_sync", mask, value, own % segment >= distance ? own - distance : own);
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32) {
    const unsigned segment = sim::segment_size(width), own = sim::lane_number();
    return sim::shuffle("__shfl_down_sync", mask, value, distance < segment - own % segment ? own + distance : own);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int distance, int width = 32) {
    const unsigned segment = sim::segment_size(width), own = sim::lane_number(), other = own ^ (unsigned)distance;
    return sim::shuffle("__shfl_xor_sync", mask, value, other < (own / segment + 1) * segment ? other : own);
}

// Atomics: blocks run on several OS threads.
template <class T>
T atomicAdd(T* place, std::type_identity_t<T> value) { return sim::atomically(place, [=](T old) { return (T)(old + value); }); }
template <class T>
T atomicSub(T* place, std::type_identity_t<T> value) { return sim::atomically(place, [=](T old) { return (T)(old - value); }); }
template <class T>
T atomicMax(T* place, std::type_identity_t<T> value) { return sim::atomically(place, [=](T old) { return old < value ? value : old; }); }
template <class T>
T atomicMin(T* place, std::type_identity_t<T> value) { return sim::atomically(place, [=](T old) { return value < old ? value : old; }); }
template <class T>
T atomicInc(T* place, std::type_identity_t<T> last) { return sim::atomically(place, [=](T old) { return old >= last ? (T)0 : (T)(old + 1); }); }
template <class T>
T atomicExch(T* place, std::type_identity_t<T> value) { return sim::atomically(place, [=](T) { return value; }); }
template <class T>
T atomicOr(T* place, std::type_identity_t<T> value) { return sim::atomically(place, [=](T old) { return (T)(old | value); }); }
template <class T>
T atomicAnd(T* place, std::type_identity_t<T> value) { return sim::atomically(place, [=](T old) { return (T)(old & value); }); }
template <class T>
T atomicCAS(T* place, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
    return sim::atomically(place, [=](T old) { return old == expected ? value : old; });
}

// Bits.
inline int __float_as_int(float x) { return sim::bits_as<int>(x); }
inline unsigned __float_as_uint(float x) { return sim::bits_as<unsigned>(x); }
inline float __int_as_float(int x) { return sim::bits_as<float>(x); }
inline float __uint_as_float(unsigned x) { return sim::bits_as<float>(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz((unsigned)x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int bit = 0; bit < 32; bit++) reversed |= (x >> bit & 1) << (31 - bit);
    return reversed;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((uint64_t)high << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31));
}
inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)((uint64_t)x * y >> 32); }
inline int __mulhi(int x, int y) { return (int)((int64_t)x * y >> 32); }

// Bytes chosen out of the eight of x and y; bit 3 of a choice spreads the byte's sign.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned choices) {
    const uint64_t bytes = (uint64_t)y << 32 | x;
    unsigned chosen = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned choice = choices >> 4 * i & 15;
        unsigned byte = (unsigned)(bytes >> 8 * (choice & 7)) & 0xff;
        if (choice & 8) byte = byte & 0x80 ? 0xff : 0;
        chosen |= byte << 8 * i;
    }
    return chosen;
}

// c + the dot product of four bytes, modulo 2^32.
inline int __dp4a(int a, int b, int c) {
    unsigned sum = (unsigned)c;
    for (int i = 0; i < 4; i++) sum += (unsigned)((int)(int8_t)(a >> 8 * i) * (int)(int8_t)(b >> 8 * i));
    return (int)sum;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 4; i++) c += (a >> 8 * i & 0xff) * (b >> 8 * i & 0xff);
    return c;
}

// Byte by byte, modulo 256.
inline unsigned __vadd4(unsigned a, unsigned b) { return ((a & 0x7f7f7f7fu) + (b & 0x7f7f7f7fu)) ^ ((a ^ b) & 0x80808080u); }
inline unsigned __vsub4(unsigned a, unsigned b) { return ((a | 0x80808080u) - (b & 0x7f7f7f7fu)) ^ ((a ^ ~b) & 0x80808080u); }

template <class T>
T __ldg(const T* place) { return *place; }
template <class T>
T __ldcg(const T* place) { return *place; }

// f32: operations round once; of functions, cards have other errors, which profiles declare.
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float rsqrtf(float x) { return (float)(1.0 / sqrt((double)x)); }
inline float __int2float_rn(int x) { return (float)x; }

inline int __float2int_rn(float x) { return sim::float_to_int(rintf(x)); }
inline int __float2int_rz(float x) { return sim::float_to_int(truncf(x)); }
inline int __float2int_rd(float x) { return sim::float_to_int(floorf(x)); }
inline int __float2int_ru(float x) { return sim::float_to_int(ceilf(x)); }

#define SIM_MIN_MAX(T)                                      \
    inline T min(T x, T y) { return y < x ? y : x; }        \
    inline T max(T x, T y) { return x < y ? y : x; }
SIM_MIN_MAX(int)
SIM_MIN_MAX(unsigned)
SIM_MIN_MAX(long)
SIM_MIN_MAX(unsigned long)
SIM_MIN_MAX(long long)
SIM_MIN_MAX(unsigned long long)
#undef SIM_MIN_MAX
inline float min(float x, float y) { return fminf(x, y); }
inline float max(float x, float y) { return fmaxf(x, y); }

// Small vectors, loaded and stored at once: their alignment is the card's.
#define SIM_VECTORS(T, name, align2, align4)                                                        \
    struct alignas(align2) name##2 { T x, y; };                                                     \
    struct alignas(align4) name##4 { T x, y, z, w; };                                               \
    inline name##2 make_##name##2(T x, T y) { return name##2{x, y}; }                               \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return name##4{x, y, z, w}; }
SIM_VECTORS(float, float, 8, 16)
SIM_VECTORS(int, int, 8, 16)
SIM_VECTORS(unsigned, uint, 8, 16)
SIM_VECTORS(signed char, char, 2, 4)
SIM_VECTORS(unsigned char, uchar, 2, 4)
SIM_VECTORS(short, short, 4, 8)
SIM_VECTORS(unsigned short, ushort, 4, 8)
#undef SIM_VECTORS

inline float2 __half22float2(half2 x) { return float2{__half2float(x.x), __half2float(x.y)}; }
