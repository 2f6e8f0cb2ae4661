// f16, the functions of emulation.h that are more than a call, and the instructions of ptx.cuh against plain loops.

#include <bit>
#include <cmath>
#include <cstring>

#include "../half.h"
#include "check.h"

// The value of f16 bits, by its definition.
static double value_of(unsigned bits) {
    const int sign = bits >> 15 ? -1 : 1, exponent = (int)(bits >> 10 & 31), fraction = (int)(bits & 1023);
    if (exponent == 0) return sign * std::ldexp(fraction, -24);
    return sign * std::ldexp(1024 + fraction, exponent - 25);
}

static bool is_number(unsigned bits) { return (bits >> 10 & 31) != 31; }

static void check_to_float() {
    for (unsigned bits = 0; bits < 65536; bits++) {
        const auto half_bits = (unsigned short)bits;
        const float by_rule = sim::half_to_float(half_bits), by_function = __half2float(half{half_bits});
        expect(std::bit_cast<uint32_t>(by_rule) == std::bit_cast<uint32_t>(by_function), "f16 " + std::to_string(bits) + " to f32: two results");
        if (is_number(bits)) expect((double)by_rule == value_of(bits), "f16 " + std::to_string(bits) + " to f32");
        const bool stays = by_rule != by_rule || __float2half_rn(by_rule).bits == bits;
        expect(stays, "f16 " + std::to_string(bits) + " to f32 and back");
    }
}

// Each f32 between two neighbouring f16 goes to the nearer one, the middle to the even one.
static void check_from_float() {
    const auto rounds_to = [](float x, unsigned bits) {
        const unsigned by_function = __float2half_rn(x).bits, by_rule = sim::half_from_float(x);
        expect(by_function == bits && by_rule == bits, "f32 " + std::to_string(x) + " to f16 gives " + std::to_string(by_function) + " and " +
                                                           std::to_string(by_rule) + ", expected " + std::to_string(bits));
    };
    for (unsigned bits = 0; bits < 0x7bff; bits++) {
        const float middle = (float)((value_of(bits) + value_of(bits + 1)) / 2);
        rounds_to(middle, bits % 2 == 0 ? bits : bits + 1);
        rounds_to(std::nextafter(middle, 0.0f), bits);
        rounds_to(-std::nextafter(middle, INFINITY), 0x8000 | (bits + 1));
    }
    rounds_to(std::nextafter(65520.0f, 0.0f), 0x7bff);
    rounds_to(65520.0f, 0x7c00);
    rounds_to(-INFINITY, 0xfc00);
    expect(__float2half_rn(NAN).bits == 0x7fff, "NaN to f16");
}

// Three pointers, as the kernels of tiles.cu take.
static void run_tile(const char* kernel, const Floats& a, const Floats& b, const Floats& c) {
    uintptr_t addresses[] = {a.address, b.address, c.address};
    void* arguments[] = {&addresses[0], &addresses[1], &addresses[2]};
    expect_result(cuLaunchKernel(function_named(kernel), 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr), 0, kernel);
    expect_result(cuCtxSynchronize(), 0, kernel);
}

template <class T>
static std::vector<float> as_floats(const std::vector<T>& values) {
    std::vector<float> floats(values.size() * sizeof(T) / sizeof(float));
    std::memcpy(floats.data(), values.data(), floats.size() * sizeof(float));
    return floats;
}

static void check_tile_s8() {
    std::vector<signed char> a(16 * 32), b(8 * 32);
    for (size_t i = 0; i < a.size(); i++) a[i] = (signed char)(i * 89 + 3);
    for (size_t i = 0; i < b.size(); i++) b[i] = (signed char)(i * 57 + 11);
    std::vector<int> c(16 * 8);
    for (size_t i = 0; i < c.size(); i++) c[i] = (int)i * 1000;
    const Floats on_a(as_floats(a)), on_b(as_floats(b)), on_c(as_floats(c));
    run_tile("tile_s8", on_a, on_b, on_c);
    for (size_t row = 0; row < 16; row++) {
        for (size_t column = 0; column < 8; column++) {
            for (size_t k = 0; k < 32; k++) c[row * 8 + column] += a[row * 32 + k] * b[column * 32 + k];
        }
    }
    expect(std::memcmp(on_c.read().data(), c.data(), c.size() * 4) == 0, "mma_m16n8k32_s8 differs from a plain loop");
}

static void check_tile_f16() {
    std::vector<unsigned short> a(16 * 16), b(16 * 8);
    for (size_t i = 0; i < a.size(); i++) a[i] = __float2half_rn(0.25f * (float)((int)(i * 37 % 101) - 50)).bits;
    for (size_t i = 0; i < b.size(); i++) b[i] = __float2half_rn(0.125f * (float)((int)(i * 53 % 97) - 48)).bits;
    const Floats on_a(as_floats(a)), on_b(as_floats(b)), on_c(16 * 8);
    run_tile("tile_f16", on_a, on_b, on_c);
    const std::vector<float> c = on_c.read();
    for (size_t row = 0; row < 16; row++) {
        for (size_t column = 0; column < 8; column++) {
            double sum = 0;
            for (size_t k = 0; k < 16; k++) sum += value_of(a[row * 16 + k]) * value_of(b[k * 8 + column]);
            expect(c[row * 8 + column] == (float)sum, "mma_m16n8k16_f16, row " + std::to_string(row) + ", column " + std::to_string(column));
        }
    }
}

static void check_atomics() {
    const Floats x(counted(4096)), y(std::vector<float>{0, 0, 0});
    expect_result(launch("atomics_right", 16, 256, 0, nullptr, x.address, y.address, 4096), 0, "atomics_right");
    const std::vector<float> values = y.read();
    // Partial sums are whole numbers below 2^24.
    expect(values[0] == 4096.0f * 4097.0f / 2.0f, "atomicAdd loses something");
    expect(values[1] == 4096.0f, "atomicMax is not the largest");
    expect(std::bit_cast<unsigned>(values[2]) == 4096, "atomicCAS loses something");
}

void check_numbers() {
    check_to_float();
    check_from_float();
    fresh_context(0);
    check_tile_s8();
    check_tile_f16();
    check_atomics();
}
