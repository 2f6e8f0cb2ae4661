// How elements of each stored type are read: plain numbers, which are blocks of one, and blocks as in files (layouts:
// crates/blocks/src/NAME.rs).
//
//   F::LEN, F::BYTES            elements and bytes of a block
//   F::element(block, e)        element number e as f32, each operation rounded by itself: the bits of the codec's
//                               decode
//
// and of those with 32 codes of up to 8 bits, whose products with other codes are integers:
//
//   F::codes(block, i)          codes 4 i to 4 i + 3 as signed bytes, the first lowest
//   F::scale, F::minimum        element = scale * code + minimum; no minimum where F::MINIMUM is false
//
// and of those that are only decoded:
//
//   F::line(block, e)           what element = scale * code - minimum has of its part, 16 elements or 32
//   F::code(block, e)           the code of element number e
//
// Blocks begin at even addresses only.
#pragma once

#include "device.cuh"

DEVICE float load_half(const unsigned char* bytes) {
    return __half2float(*reinterpret_cast<const half*>(bytes));
}

DEVICE unsigned load_word(const unsigned char* bytes) {
    const unsigned short* const halves = reinterpret_cast<const unsigned short*>(bytes);
    return halves[0] | (unsigned)halves[1] << 16;
}

// A plain number.
template <class T>
struct Number {
    static constexpr int LEN = 1, BYTES = sizeof(T);
    DEVICE float element(const unsigned char* block, int) { return to_float(*reinterpret_cast<const T*>(block)); }
};

// Four of 32 codes of 4 bits: byte j holds that of element j low, of element j + 16 high.
DEVICE unsigned nibbles(const unsigned char* bytes, int i) {
    return load_word(bytes + i % 4 * 4) >> (i / 4 * 4) & 0x0f0f0f0fu;
}

// The fifth bits of four codes where they belong: bit j of 32 is that of element j.
DEVICE unsigned fifth_bits(const unsigned char* bytes, int i) {
    const unsigned bits = load_word(bytes) >> (4 * i) & 15;
    // Bit b goes to bit 8 b.
    return (bits * 0x00204081u & 0x01010101u) << 4;
}

// Each of four bytes below 128, less `amount`.
DEVICE int each_less(unsigned bytes, unsigned amount) {
    return (int)(((bytes | 0x80808080u) - amount * 0x01010101u) ^ 0x80808080u);
}

// Elements of a format with codes.
template <class F>
struct Coded {
    static constexpr int LEN = 32;
    DEVICE float scale(const unsigned char* block) { return load_half(block); }
    DEVICE float minimum(const unsigned char* block) { return load_half(block + 2); }
    DEVICE float element(const unsigned char* block, int e) {
        const signed char code = (signed char)((unsigned)F::codes(block, e / 4) >> (e % 4 * 8));
        const float product = F::scale(block) * (float)code;
        return F::MINIMUM ? product + F::minimum(block) : product;
    }
};

struct Q4_0 : Coded<Q4_0> {
    static constexpr int BYTES = 18;
    static constexpr bool MINIMUM = false;
    DEVICE int codes(const unsigned char* block, int i) { return each_less(nibbles(block + 2, i), 8); }
};

struct Q4_1 : Coded<Q4_1> {
    static constexpr int BYTES = 20;
    static constexpr bool MINIMUM = true;
    DEVICE int codes(const unsigned char* block, int i) { return (int)nibbles(block + 4, i); }
};

struct Q5_0 : Coded<Q5_0> {
    static constexpr int BYTES = 22;
    static constexpr bool MINIMUM = false;
    DEVICE int codes(const unsigned char* block, int i) {
        return each_less(nibbles(block + 6, i) | fifth_bits(block + 2, i), 16);
    }
};

struct Q5_1 : Coded<Q5_1> {
    static constexpr int BYTES = 24;
    static constexpr bool MINIMUM = true;
    DEVICE int codes(const unsigned char* block, int i) { return (int)(nibbles(block + 8, i) | fifth_bits(block + 4, i)); }
};

struct Q8_0 : Coded<Q8_0> {
    static constexpr int BYTES = 34;
    static constexpr bool MINIMUM = false;
    DEVICE int codes(const unsigned char* block, int i) { return (int)load_word(block + 2 + 4 * i); }
};

// The sum behind the scale is not needed.
struct Q8_1 : Coded<Q8_1> {
    static constexpr int BYTES = 36;
    static constexpr bool MINIMUM = false;
    DEVICE int codes(const unsigned char* block, int i) { return (int)load_word(block + 4 + 4 * i); }
};

// What a part of a block has beside its codes.
struct Line {
    float scale, minimum;
};

// Elements of a format that is only decoded.
template <class F>
struct Lined {
    DEVICE float element(const unsigned char* block, int e) {
        const Line line = F::line(block, e);
        return line.scale * (float)F::code(block, e) - line.minimum;
    }
};

// The step of a place of 4 bits, in bytes, the first lowest: -127 -104 -83 -65 -49 -35 -22 -10, then 1 13 25 38 53 69
// 89 113.
DEVICE int step_at(int place) {
    constexpr unsigned long long FIRST = 0xf6eaddcfbfad9881u, LAST = 0x7159453526190d01u;
    return (signed char)((place < 8 ? FIRST : LAST) >> (place % 8 * 8));
}

// Four bits of element e of 2 HALF: byte e % HALF holds the first half low and the last high.
template <int HALF>
DEVICE int nibble_of_pair(const unsigned char* bytes, int e) {
    return bytes[e % HALF] >> (e / HALF * 4) & 15;
}

struct Iq4_nl : Lined<Iq4_nl> {
    static constexpr int LEN = 32, BYTES = 18;
    DEVICE Line line(const unsigned char* block, int) { return Line{load_half(block), 0.0f}; }
    DEVICE int code(const unsigned char* block, int e) { return step_at(nibble_of_pair<16>(block + 2, e)); }
};

// Scales of 6 bits: nibbles of four bytes, the upper two bits in 16 bits before them.
struct Iq4_xs : Lined<Iq4_xs> {
    static constexpr int LEN = 256, BYTES = 136;
    DEVICE Line line(const unsigned char* block, int e) {
        const int group = e / 32, upper = (block[2 + group / 4] >> (group % 4 * 2)) & 3;
        const int scale = ((block[4 + group / 2] >> (group % 2 * 4) & 15) | upper << 4) - 32;
        return Line{load_half(block) * (float)scale, 0.0f};
    }
    DEVICE int code(const unsigned char* block, int e) {
        return step_at(nibble_of_pair<16>(block + 8 + e / 32 * 16, e % 32));
    }
};

// Twice the number of a code of 4 bits: its sign, and 0 1 2 3 4 6 8 12 in bytes, the first lowest.
DEVICE int doubled_fp4(int code) {
    constexpr unsigned long long MAGNITUDES = 0x0c08060403020100u;
    const int magnitude = (int)(MAGNITUDES >> (code % 8 * 8) & 15);
    return code < 8 ? magnitude : -magnitude;
}

struct Mxfp4 : Lined<Mxfp4> {
    static constexpr int LEN = 32, BYTES = 17;
    // Half of the scale: a power of two, the two smallest of which are subnormal, and NaN for what is reserved.
    DEVICE Line line(const unsigned char* block, int) {
        const int exponent = block[0];
        const int bits = exponent == 255 ? 0x7fc00000 : exponent < 2 ? 0x200000 << exponent : (exponent - 1) << 23;
        return Line{__int_as_float(bits), 0.0f};
    }
    DEVICE int code(const unsigned char* block, int e) { return doubled_fp4(nibble_of_pair<16>(block + 1, e)); }
};

struct Nvfp4 : Lined<Nvfp4> {
    static constexpr int LEN = 64, BYTES = 36;
    // Half of the scale of 4 bits of exponent and 3 of fraction, and NaN for what is reserved.
    DEVICE Line line(const unsigned char* block, int e) {
        const int scale = block[e / 16] & 127, exponent = scale >> 3;
        const float fraction = (float)(scale & 7);
        const float power = __int_as_float((exponent == 0 ? 117 : 119 + exponent) << 23);
        const float half_scale = (exponent == 0 ? fraction : 1.0f + fraction / 8.0f) * power;
        return Line{scale == 127 ? __int_as_float(0x7fc00000) : half_scale, 0.0f};
    }
    DEVICE int code(const unsigned char* block, int e) {
        return doubled_fp4(nibble_of_pair<8>(block + 4 + e / 16 * 8, e % 16));
    }
};

// Two bits of element e of 256: of each 128 elements, byte e % 32 holds every 32nd, the first lowest.
DEVICE int two_bits(const unsigned char* bytes, int e) {
    return bytes[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3;
}

// One bit of element e of 256: bit e / 32 of byte e % 32.
DEVICE int one_bit(const unsigned char* bytes, int e) {
    return bytes[e % 32] >> (e / 32) & 1;
}

// Four bits of element e of 256: of each 64 elements, byte e % 32 holds the first 32 low and the last 32 high.
DEVICE int four_bits(const unsigned char* bytes, int e) {
    return bytes[e / 64 * 32 + e % 32] >> (e % 64 / 32 * 4) & 15;
}

// What the codes of a part are multiplied with, and what goes off them, in units of the block's two scales.
struct Part {
    int step, offset;
};

// Part `part` of eight in 12 bytes: of the first four, the low six bits of a byte each; of the last four, nibbles
// behind them, with the upper two bits above the first four's.
DEVICE Part part_of_eight(const unsigned char* bytes, int part) {
    if (part < 4) return Part{bytes[part] & 63, bytes[part + 4] & 63};
    const int pair = bytes[part + 4];
    return Part{(pair & 15) | bytes[part - 4] >> 6 << 4, pair >> 4 | bytes[part] >> 6 << 4};
}

struct Q2_K : Lined<Q2_K> {
    static constexpr int LEN = 256, BYTES = 84;
    DEVICE Line line(const unsigned char* block, int e) {
        const int part = block[e / 16];
        return Line{load_half(block + 80) * (float)(part & 15), load_half(block + 82) * (float)(part >> 4)};
    }
    DEVICE int code(const unsigned char* block, int e) { return two_bits(block + 16, e); }
};

struct Q3_K : Lined<Q3_K> {
    static constexpr int LEN = 256, BYTES = 110;
    // Four bits of step j stand in byte j % 8, low where j < 8; its upper two in byte 8 + j % 4 at bit 2 (j / 4).
    DEVICE int step(const unsigned char* bytes, int j) {
        const int lower = bytes[j % 8] >> (j / 8 * 4) & 15, upper = bytes[8 + j % 4] >> (j / 4 * 2) & 3;
        return (lower | upper << 4) - 32;
    }
    DEVICE Line line(const unsigned char* block, int e) {
        return Line{load_half(block + 108) * (float)step(block + 96, e / 16), 0.0f};
    }
    DEVICE int code(const unsigned char* block, int e) { return (two_bits(block + 32, e) | one_bit(block, e) << 2) - 4; }
};

// The line of a part of eight, of a block that begins with two scales.
DEVICE Line line_of_eight(const unsigned char* block, int part) {
    const Part own = part_of_eight(block + 4, part);
    return Line{load_half(block) * (float)own.step, load_half(block + 2) * (float)own.offset};
}

struct Q4_K : Lined<Q4_K> {
    static constexpr int LEN = 256, BYTES = 144;
    DEVICE Line line(const unsigned char* block, int e) { return line_of_eight(block, e / 32); }
    DEVICE int code(const unsigned char* block, int e) { return four_bits(block + 16, e); }
};

struct Q5_K : Lined<Q5_K> {
    static constexpr int LEN = 256, BYTES = 176;
    DEVICE Line line(const unsigned char* block, int e) { return line_of_eight(block, e / 32); }
    DEVICE int code(const unsigned char* block, int e) { return four_bits(block + 48, e) | one_bit(block + 16, e) << 4; }
};

struct Q6_K : Lined<Q6_K> {
    static constexpr int LEN = 256, BYTES = 210;
    DEVICE Line line(const unsigned char* block, int e) {
        return Line{load_half(block + 208) * (float)(signed char)block[192 + e / 16], 0.0f};
    }
    // Of each 128 elements, the first 64 are low nibbles of 64 bytes and the last 64 their high ones.
    DEVICE int code(const unsigned char* block, int e) {
        const int lower = block[e / 128 * 64 + e % 64] >> (e % 128 / 64 * 4) & 15;
        return (lower | two_bits(block + 128, e) << 4) - 32;
    }
};

struct Tq2_0 : Lined<Tq2_0> {
    static constexpr int LEN = 256, BYTES = 66;
    DEVICE Line line(const unsigned char* block, int) { return Line{load_half(block + 64), 0.0f}; }
    DEVICE int code(const unsigned char* block, int e) { return two_bits(block, e) - 1; }
};

// Five digits of base 3 a byte: of 160 elements in 32 bytes, of 80 in 16, and four of 16 in 4.
struct Tq1_0 : Lined<Tq1_0> {
    static constexpr int LEN = 256, BYTES = 54;
    DEVICE Line line(const unsigned char* block, int) { return Line{load_half(block + 52), 0.0f}; }
    DEVICE int code(const unsigned char* block, int e) {
        const int byte = e < 160 ? e % 32 : e < 240 ? 32 + e % 16 : 48 + e % 4;
        const int digit = e < 160 ? e / 32 : e < 240 ? (e - 160) / 16 : (e - 240) / 4;
        // 3^0 to 3^4, in bytes, the first lowest.
        constexpr unsigned long long POWERS = 0x511b090301u;
        const int rest = block[byte] * (int)(POWERS >> (digit * 8) & 255) & 255;
        return (rest * 3 >> 8) - 1;
    }
};

// A row of a tensor, wherever and in whatever form its elements lie.
template <class F>
struct Row {
    const unsigned char* first;
    Index step;

    // Element k.
    __device__ __forceinline__ float operator[](Index k) const {
        const Index place = k * step;
        return F::element(first + place / F::LEN * F::BYTES, (int)(place % F::LEN));
    }

    // Block b of a row of blocks.
    __device__ __forceinline__ const unsigned char* block(Index b) const { return first + b * F::BYTES; }

    // The row that begins so many elements behind this one: whole blocks.
    __device__ __forceinline__ Row behind(Index elements) const { return Row{first + elements / F::LEN * F::BYTES, step}; }
};

// The row that begins so many elements behind the first of a tensor.
template <class F>
DEVICE Row<F> row_at(const View& view, Index distance) {
    return Row<F>{view.data + distance / F::LEN * F::BYTES, view.steps[0]};
}

// An i32 of a vector or a matrix.
DEVICE Index integer_at(const View& view, Index i0, Index i1 = 0) {
    return cells<int>(view)[i0 * view.steps[0] + i1 * view.steps[1]];
}
