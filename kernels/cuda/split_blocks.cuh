// Blocks of 32 codes as the card keeps weights: planes in which the same part of all blocks lies, so that the lanes of
// a warp, a block each, read neighbouring bytes by one load. `split_weights.cu` makes them of the file's form and back.
//
//   codes   16 bytes a block: of q4_* all codes, of q5_* their lower four bits, of q8_* codes 0 to 15
//   rest    q4_*: none    q5_*: 4 bytes, the fifth bits    q8_*: 16 bytes, codes 16 to 31
//   heads   what the block begins with: its scale, f16, and behind it the minimum, or the sum, where it has one
//
// The three addresses are multiples of 16. A form S has
//
//   S::File                     the format in the file (blocks.cuh)
//   S::unpack(block, codes)     codes 4 i to 4 i + 3 plus OFFSET as signed bytes of word i, the first lowest
//   S::pair(codes, rest, t)     codes 4 t to 4 t + 3, and 16 + 4 t to 19 + 4 t, as signed bytes: of word t of `codes`,
//                               and of word t of the rest
//                               where that has 16 bytes, else all of it
#pragma once

#include "blocks.cuh"
#include "ptx.cuh"

struct Planes {
    unsigned char* codes;
    unsigned char* rest;
    unsigned char* heads;
};

struct Nothing {};

// A block in registers.
template <class S>
struct SplitBlock {
    uint4 codes;
    typename S::Rest rest;
    typename S::Head head;
};

// Scale alone, or scale and minimum.
DEVICE half load_head(const half* head) { return __ldg(head); }
DEVICE half2 load_head(const half2* head) { return __ldg(head); }
DEVICE float scale_of(half head) { return __half2float(head); }
DEVICE float scale_of(half2 head) { return __half22float2(head).x; }
DEVICE float minimum_of(half) { return 0.0f; }
DEVICE float minimum_of(half2 head) { return __half22float2(head).y; }

DEVICE Nothing load_rest(const Nothing*) { return Nothing{}; }
DEVICE unsigned load_rest(const unsigned* rest) { return __ldg(rest); }
DEVICE uint4 load_rest(const uint4* rest) { return load_once_16(rest); }

// Four bits each: byte j holds the code of element j low, of element j + 16 high.
DEVICE void unpack_nibbles(const uint4& packed, int (&codes)[8]) {
    const unsigned words[4] = {packed.x, packed.y, packed.z, packed.w};
    for (int i = 0; i < 4; i++) {
        codes[i] = (int)(words[i] & 0x0f0f0f0fu);
        codes[i + 4] = (int)(words[i] >> 4 & 0x0f0f0f0fu);
    }
}

// The fifth bits of codes 4 i to 4 i + 3, of 32, where they belong.
DEVICE int fifth_bits_of(unsigned bits, int i) {
    return (int)(((bits >> (4 * i) & 15) * 0x00204081u & 0x01010101u) << 4);
}

// Bytes below 128, each less an offset.
template <int OFFSET>
DEVICE int2 less_offset(unsigned low, unsigned high) {
    if (OFFSET == 0) return make_int2((int)low, (int)high);
    return make_int2(each_less(low, OFFSET), each_less(high, OFFSET));
}

template <class F, class H, int O>
struct SplitNibbles {
    typedef F File;
    typedef H Head;
    typedef Nothing Rest;
    static constexpr int REST_BYTES = 0, OFFSET = O;
    DEVICE void unpack(const SplitBlock<SplitNibbles>& block, int (&codes)[8]) { unpack_nibbles(block.codes, codes); }
    DEVICE int2 pair(unsigned codes, unsigned, int) { return less_offset<O>(codes & 0x0f0f0f0fu, codes >> 4 & 0x0f0f0f0fu); }
};

template <class F, class H, int O>
struct SplitFiveBits {
    typedef F File;
    typedef H Head;
    typedef unsigned Rest;
    static constexpr int REST_BYTES = 4, OFFSET = O;
    DEVICE void unpack(const SplitBlock<SplitFiveBits>& block, int (&codes)[8]) {
        unpack_nibbles(block.codes, codes);
        for (int i = 0; i < 8; i++) codes[i] |= fifth_bits_of(block.rest, i);
    }
    DEVICE int2 pair(unsigned codes, unsigned rest, int t) {
        const unsigned low = (unsigned)fifth_bits_of(rest, t), high = (unsigned)fifth_bits_of(rest, t + 4);
        return less_offset<O>((codes & 0x0f0f0f0fu) | low, (codes >> 4 & 0x0f0f0f0fu) | high);
    }
};

template <class F, class H>
struct SplitBytes {
    typedef F File;
    typedef H Head;
    typedef uint4 Rest;
    static constexpr int REST_BYTES = 16, OFFSET = 0;
    DEVICE void unpack(const SplitBlock<SplitBytes>& block, int (&codes)[8]) {
        codes[0] = (int)block.codes.x, codes[1] = (int)block.codes.y, codes[2] = (int)block.codes.z, codes[3] = (int)block.codes.w;
        codes[4] = (int)block.rest.x, codes[5] = (int)block.rest.y, codes[6] = (int)block.rest.z, codes[7] = (int)block.rest.w;
    }
    DEVICE int2 pair(unsigned codes, unsigned rest, int) { return make_int2((int)codes, (int)rest); }
};

typedef SplitNibbles<Q4_0, half, 8> SplitQ4_0;
typedef SplitNibbles<Q4_1, half2, 0> SplitQ4_1;
typedef SplitFiveBits<Q5_0, half, 16> SplitQ5_0;
typedef SplitFiveBits<Q5_1, half2, 0> SplitQ5_1;
typedef SplitBytes<Q8_0, half> SplitQ8_0;
typedef SplitBytes<Q8_1, half2> SplitQ8_1;

// A kernel for each form: MACRO(type, form).
#define FOR_EACH_SPLIT(MACRO) \
    MACRO(q4_0, SplitQ4_0)    \
    MACRO(q4_1, SplitQ4_1)    \
    MACRO(q5_0, SplitQ5_0)    \
    MACRO(q5_1, SplitQ5_1)    \
    MACRO(q8_0, SplitQ8_0)    \
    MACRO(q8_1, SplitQ8_1)

// Block `b` of the planes, which is read once: its bytes do not displace what caches hold.
template <class S>
DEVICE SplitBlock<S> load_split(const Planes& planes, Index b) {
    SplitBlock<S> block;
    block.codes = load_once_16(reinterpret_cast<const uint4*>(planes.codes) + b);
    block.rest = load_rest(reinterpret_cast<const typename S::Rest*>(planes.rest) + b);
    block.head = load_head(reinterpret_cast<const typename S::Head*>(planes.heads) + b);
    return block;
}

// Element `e` of a block, as the codec decodes it: each operation rounded by itself.
template <class S>
DEVICE float split_element(const Planes& planes, Index b, int e) {
    const SplitBlock<S> block = load_split<S>(planes, b);
    int codes[8];
    S::unpack(block, codes);
    int word = 0;
    for (int i = 0; i < 8; i++) word = i == e / 4 ? codes[i] : word;
    const float product = scale_of(block.head) * (float)((signed char)(word >> (e % 4 * 8)) - S::OFFSET);
    return S::File::MINIMUM ? product + minimum_of(block.head) : product;
}
