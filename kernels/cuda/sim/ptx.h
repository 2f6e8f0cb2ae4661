// The simulator's side of ptx.cuh: a warp's instruction is a collective, whose last lane computes for all.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "emulation.h"

namespace sim {

struct MultipliedS8 {
    int* d;
    const int* a;
    const int* b;
};

inline int byte_of(int word, int place) { return (int8_t)(word >> 8 * place); }

// Rows and columns of the picture in ptx.cuh.
inline void multiply_s8(MultipliedS8* const* lanes, unsigned) {
    for (int row = 0; row < 16; row++) {
        for (int column = 0; column < 8; column++) {
            int sum = 0;
            for (int k = 0; k < 32; k++) {
                const int t = k % 16 / 4, half_of_k = k / 16;
                sum += byte_of(lanes[row % 8 * 4 + t]->a[row / 8 + 2 * half_of_k], k % 4) * byte_of(lanes[column * 4 + t]->b[half_of_k], k % 4);
            }
            int& d = lanes[row % 8 * 4 + column / 2]->d[row / 8 * 2 + column % 2];
            d = (int)((unsigned)d + (unsigned)sum);
        }
    }
}

inline void mma_m16n8k32_s8(int (&d)[4], const int (&a)[4], const int (&b)[2]) {
    MultipliedS8 operand{d, a, b};
    meet_with<MultipliedS8, multiply_s8>("mma_m16n8k32_s8", 0xffffffffu, operand);
}

struct MultipliedF16 {
    float* d;
    const unsigned* a;
    const unsigned* b;
};

inline double half_of(unsigned word, int place) { return __half2float(half{(unsigned short)(word >> 16 * place)}); }

// Two to the power of a number from -1022 to 1023.
inline double power_of_two(int exponent) {
    const uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double number;
    std::memcpy(&number, &bits, sizeof number);
    return number;
}

// The exponent of the first bit of a number; below -1000 for zero.
inline int exponent_of(double number) {
    uint64_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    return (int)(bits >> 52 & 0x7ff) - 1023;
}

// The sum of a partial sum and 16 exact products as compute capability 9.0 adds them: each is cut off at 25 bits after
// the first bit of the largest, and their sum at the 24 bits of a float (Fasi et al. 2021, 10.7717/peerj-cs.330, with
// the constants of Hopper in Khattak and Mikaitis 2025, arXiv:2512.07004).
inline float add_cut_off(double partial, const double (&products)[16]) {
    int largest = exponent_of(partial);
    for (const double product : products) largest = std::max(largest, exponent_of(product));
    double sum = partial;
    if (largest >= 1024 || largest < -900) {
        // Not finite, or all zero.
        for (const double product : products) sum += product;
        return (float)sum;
    }
    const double unit = power_of_two(largest - 25), per_unit = power_of_two(25 - largest);
    int64_t units = (int64_t)(partial * per_unit);
    for (const double product : products) units += (int64_t)(product * per_unit);
    sum = (double)units * unit;
    const float rounded = (float)sum;
    const bool is_beyond = std::isfinite(rounded) && std::fabs((double)rounded) > std::fabs(sum);
    return is_beyond ? std::nextafter(rounded, 0.0f) : rounded;
}

inline void multiply_f16(MultipliedF16* const* lanes, unsigned) {
    for (int row = 0; row < 16; row++) {
        for (int column = 0; column < 8; column++) {
            float& d = lanes[row % 8 * 4 + column / 2]->d[row / 8 * 2 + column % 2];
            double products[16];
            for (int k = 0; k < 16; k++) {
                const int t = k % 8 / 2, half_of_k = k / 8;
                products[k] = half_of(lanes[row % 8 * 4 + t]->a[row / 8 + 2 * half_of_k], k % 2) * half_of(lanes[column * 4 + t]->b[half_of_k], k % 2);
            }
            d = add_cut_off(d, products);
        }
    }
}

inline void mma_m16n8k16_f16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    MultipliedF16 operand{d, a, b};
    meet_with<MultipliedF16, multiply_f16>("mma_m16n8k16_f16", 0xffffffffu, operand);
}

// Whoever asks for what is not there is found as whoever reads it.
inline void prefetch(const void* place) { [[maybe_unused]] const unsigned char read = *static_cast<const volatile unsigned char*>(place); }

struct LoadedMatrices {
    unsigned* tiles;
    const unsigned char* row;
    int count;
    bool transposed;
};

inline void load_all_matrices(LoadedMatrices* const* lanes, unsigned) {
    const auto number = [&](int tile, int row, int column) {
        unsigned short bits;
        std::memcpy(&bits, lanes[tile * 8 + row]->row + 2 * column, 2);
        return (unsigned)bits;
    };
    for (int l = 0; l < (int)LANES; l++) {
        const int g = l / 4, t = l % 4;
        for (int tile = 0; tile < lanes[l]->count; tile++) {
            const unsigned low = lanes[l]->transposed ? number(tile, 2 * t, g) : number(tile, g, 2 * t);
            const unsigned high = lanes[l]->transposed ? number(tile, 2 * t + 1, g) : number(tile, g, 2 * t + 1);
            lanes[l]->tiles[tile] = high << 16 | low;
        }
    }
}

inline void load_matrices(unsigned* tiles, const void* row, int count, bool transposed) {
    static constexpr const char* NAMES[] = {"load_matrices_x2", "load_matrices_x4", "load_matrices_transposed_x2", "load_matrices_transposed_x4"};
    const bool gives_row = (int)lane_number() < count * 8;
    if (gives_row && reinterpret_cast<uintptr_t>(row) % 16 != 0) fail("loads a tile's row from an address that is no multiple of 16", true);
    LoadedMatrices operand{tiles, static_cast<const unsigned char*>(row), count, transposed};
    meet_with<LoadedMatrices, load_all_matrices>(NAMES[(transposed ? 2 : 0) + (count == 4)], 0xffffffffu, operand);
}

}  // namespace sim
