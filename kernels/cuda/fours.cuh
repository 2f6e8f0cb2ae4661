// Rows that are read by 16 bytes: four elements of f32 at a time, element k by thread k / 4 mod 256 of the row's block.
// What a row has up to HELD fours for each thread stays in registers, so that several passes over it read memory once;
// the rest is read again by each.
#pragma once

#include "device.cuh"

constexpr int HELD = 4, FOURS_THREADS = 256;

DEVICE float4 load_four(const float* row, Index four) {
    return reinterpret_cast<const float4*>(row)[four];
}

DEVICE float4 load_four(const half* row, Index four) {
    const ushort4 bits = reinterpret_cast<const ushort4*>(row)[four];
    return make_float4(to_float(__ushort_as_half(bits.x)), to_float(__ushort_as_half(bits.y)), to_float(__ushort_as_half(bits.z)),
                       to_float(__ushort_as_half(bits.w)));
}

DEVICE float4 load_four(const Bf16* row, Index four) {
    const ushort4 bits = reinterpret_cast<const ushort4*>(row)[four];
    return make_float4(to_float(Bf16{bits.x}), to_float(Bf16{bits.y}), to_float(Bf16{bits.z}), to_float(Bf16{bits.w}));
}

DEVICE void store_four(float* row, Index four, const float4& x) {
    reinterpret_cast<float4*>(row)[four] = x;
}

struct HeldRow {
    const float* row;
    Index fours;
    float4 held[HELD];
};

DEVICE HeldRow held_row(const float* row, Index len) {
    HeldRow held{row, len / 4, {}};
    for (int i = 0; i < HELD; i++) {
        const Index four = threadIdx.x + i * FOURS_THREADS;
        if (four < held.fours) held.held[i] = load_four(row, four);
    }
    return held;
}

// Calls visit(x, number) for the thread's fours, in order.
template <class Visit>
DEVICE void for_each_four(const HeldRow& row, Visit visit) {
    for (int i = 0; i < HELD; i++) {
        const Index four = threadIdx.x + i * FOURS_THREADS;
        if (four < row.fours) visit(row.held[i], four);
    }
    for (Index four = threadIdx.x + HELD * FOURS_THREADS; four < row.fours; four += FOURS_THREADS) visit(load_four(row.row, four), four);
}

// x_0^2 + ... + x_3^2 added to a sum, one after the other.
DEVICE float add_squares(const float4& x, float sum) {
    return fmaf(x.w, x.w, fmaf(x.z, x.z, fmaf(x.y, x.y, fmaf(x.x, x.x, sum))));
}
