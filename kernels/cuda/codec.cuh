// Numbers in every type that is read and written: rounded as the codecs of crates/blocks round, byte for byte.
#pragma once

#include "elements.cuh"

// 32 weights d (code - 8): code j in the low half of byte j, code j + 16 in the high half.
struct BlockQ4_0 {
    half scale;
    unsigned char pairs[16];
};

// 32 weights d code.
struct BlockQ8_0 {
    half scale;
    signed char codes[32];
};

constexpr int BLOCK = 32;
static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ8_0) == 34, "blocks lie behind each other");

DEVICE float weight(const BlockQ4_0& block, int j) {
    const int pair = block.pairs[j % 16];
    return to_float(block.scale) * (float)((j < 16 ? pair & 15 : pair >> 4) - 8);
}

DEVICE float weight(const BlockQ8_0& block, int j) {
    return to_float(block.scale) * (float)block.codes[j];
}

// The element so far behind the first; a weight of a block is a number that f32 holds exactly.
template <class T>
DEVICE T element_at(const T* cells, Index distance) {
    return cells[distance];
}

DEVICE float element_at(const BlockQ4_0* blocks, Index distance) {
    return weight(blocks[distance / BLOCK], (int)(distance % BLOCK));
}

DEVICE float element_at(const BlockQ8_0* blocks, Index distance) {
    return weight(blocks[distance / BLOCK], (int)(distance % BLOCK));
}

// As f32: to the nearest, halves to even.
DEVICE float nearest(float x) { return x; }
DEVICE float nearest(half x) { return to_float(x); }
DEVICE float nearest(Bf16 x) { return to_float(x); }
DEVICE float nearest(int x) { return (float)x; }
DEVICE float nearest(Index x) { return (float)x; }

// The 24 bits that an f32 holds, the last of them set where one behind it was cut off ("round to odd", Boldo and
// Melquiond 2008): a second rounding, to a narrower type, gives what one would have.
DEVICE float odd(Index x) {
    unsigned long long magnitude = x < 0 ? 0ull - (unsigned long long)x : (unsigned long long)x;
    int lost = 0;
    bool sticky = false;
    for (; magnitude >> 24 != 0; lost++, magnitude >>= 1) sticky = sticky || (magnitude & 1) != 0;
    const float kept = ldexpf((float)(unsigned)(magnitude | (sticky ? 1 : 0)), lost);
    return x < 0 ? -kept : kept;
}

DEVICE float odd(int x) { return odd((Index)x); }
DEVICE float odd(float x) { return x; }
DEVICE float odd(half x) { return to_float(x); }
DEVICE float odd(Bf16 x) { return to_float(x); }

// Cut toward zero; the nearest integer there is beyond the range, 0 for NaN.
DEVICE Index integer(float x) {
    if (x != x) return 0;
    if (x >= 9223372036854775808.0f) return 0x7fffffffffffffffll;
    return x < -9223372036854775808.0f ? -0x7fffffffffffffffll - 1 : (Index)x;
}

DEVICE Index integer(half x) { return integer(to_float(x)); }
DEVICE Index integer(Bf16 x) { return integer(to_float(x)); }
DEVICE Index integer(int x) { return x; }
DEVICE Index integer(Index x) { return x; }

// A number in another type.
template <class From>
DEVICE void convert(From x, float& y) {
    y = nearest(x);
}

template <class From>
DEVICE void convert(From x, half& y) {
    y = from_float<half>(odd(x));
}

template <class From>
DEVICE void convert(From x, Bf16& y) {
    y = from_float<Bf16>(odd(x));
}

template <class From>
DEVICE void convert(From x, int& y) {
    const Index cut = integer(x);
    y = cut > 0x7fffffff ? 0x7fffffff : cut < -0x80000000ll ? (int)-0x80000000ll : (int)cut;
}

template <class From>
DEVICE void convert(From x, Index& y) {
    y = integer(x);
}

// The low byte of a number cut toward zero; 0 beyond 32 bits.
DEVICE signed char low_byte(float x) {
    return fabsf(x) < 2147483648.0f ? (signed char)(int)x : (signed char)0;
}

DEVICE float reciprocal(float scale) {
    return scale != 0.0f ? 1.0f / scale : 0.0f;
}

// A block by a whole warp, lane j holding weight j. The weight of largest magnitude, the first of several, becomes code
// 0.
DEVICE void encode(float weight, BlockQ4_0& block) {
    const int lane = threadIdx.x % WARP;
    const float magnitude = fabsf(weight), largest = warp_max(magnitude);
    const int first = __ffs((int)__ballot_sync(ALL_LANES, magnitude == largest)) - 1;
    const float extreme = __shfl_sync(ALL_LANES, weight, first & (WARP - 1));
    const float scale = (largest > 0.0f ? extreme : 0.0f) / -8.0f;
    const signed char cut = low_byte(weight * reciprocal(scale) + 8.5f);
    const int code = cut < 15 ? cut : 15;
    const int high = __shfl_xor_sync(ALL_LANES, code, 16);
    if (lane < 16) block.pairs[lane] = (unsigned char)((code & 15) | high << 4);
    if (lane == 0) block.scale = from_float<half>(scale);
}

// The largest magnitude becomes code 127 or -127.
DEVICE void encode(float weight, BlockQ8_0& block) {
    const int lane = threadIdx.x % WARP;
    const float scale = warp_max(fabsf(weight)) / 127.0f;
    block.codes[lane] = low_byte(roundf(weight * reciprocal(scale)));
    if (lane == 0) block.scale = from_float<half>(scale);
}

// A number to its place, in the type that lies there. Blocks are written by whole warps, whose lanes have the weights
// in order.
template <class From, class T>
DEVICE void store(From x, T* cells, Index cell) {
    convert(x, cells[cell]);
}

template <class From>
DEVICE void store(From x, BlockQ4_0* blocks, Index cell) {
    encode(nearest(x), blocks[cell / BLOCK]);
}

template <class From>
DEVICE void store(From x, BlockQ8_0* blocks, Index cell) {
    encode(nearest(x), blocks[cell / BLOCK]);
}
