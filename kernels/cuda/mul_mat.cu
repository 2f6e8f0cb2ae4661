// y[m, n, i, j] = sum_k w[k, m, i / (n2 / b2), j / (n3 / b3)] x[k, n, i, j]: w [K, M, b2, b3] of any stored type, x [K,
// N, n2, n3] f32 or f16, y f32 [M, N, n2, n3].
//
// A warp takes one row of weights and up to eight tokens; neighbouring warps take neighbouring rows. Blocks of 32 codes
// take x as quantize_q8_1 leaves it, other types as it is.
#include "products.cuh"

constexpr int TOKENS = 8;

// The part of the result that a warp computes.
struct Tile {
    Index row, token, i2, i3;
    // Tokens; none behind the last tile.
    int count;
};

DEVICE Tile tile_of_warp(const View& y) {
    const Index groups = (y.sizes[1] + TOKENS - 1) / TOKENS;
    Index number = thread_number() / WARP;
    Tile tile;
    tile.row = number % y.sizes[0], number /= y.sizes[0];
    tile.token = number % groups * TOKENS, number /= groups;
    tile.i2 = number % y.sizes[2], tile.i3 = number / y.sizes[2];
    const Index left = tile.i3 < y.sizes[3] ? y.sizes[1] - tile.token : 0;
    tile.count = (int)(left < TOKENS ? left : TOKENS);
    return tile;
}

// The weights of a tile: the same for n2 / b2 by n3 / b3 neighbouring batches.
template <class W>
DEVICE Row<W> weights_of(const View& w, const View& y, const Tile& tile) {
    const Index i2 = tile.i2 / (y.sizes[2] / w.sizes[2]), i3 = tile.i3 / (y.sizes[3] / w.sizes[3]);
    return row_at<W>(w, tile.row * w.steps[1] + i2 * w.steps[2] + i3 * w.steps[3]);
}

DEVICE void write_tile(const View& y, const Tile& tile, float (&sums)[TOKENS]) {
    const Index first = tile.row * y.steps[0] + tile.token * y.steps[1] + tile.i2 * y.steps[2] + tile.i3 * y.steps[3];
    const int lane = threadIdx.x % WARP;
    for (int t = 0; t < TOKENS; t++) {
        if (t >= tile.count) continue;
        const float sum = warp_sum(sums[t]);
        if (lane == t) cells_to_write<float>(y)[first + t * y.steps[1]] = sum;
    }
}

template <class W, class X>
DEVICE void multiply(const View& w, const View& x, const View& y) {
    const Tile tile = tile_of_warp(y);
    if (tile.count == 0) return;
    const Row<X> tokens = row_at<X>(x, tile.token * x.steps[1] + tile.i2 * x.steps[2] + tile.i3 * x.steps[3]);
    float sums[TOKENS] = {};
    add_products(weights_of<W>(w, y, tile), tokens, x.steps[1], tile.count, w.sizes[0], sums);
    write_tile(y, tile, sums);
}

template <class W>
DEVICE void multiply_codes(const View& w, const Activations& x, const View& y) {
    const Tile tile = tile_of_warp(y);
    if (tile.count == 0) return;
    const Index blocks = w.sizes[0] / ACTIVATIONS, token = tile.token + y.sizes[1] * (tile.i2 + y.sizes[2] * tile.i3);
    float sums[TOKENS] = {};
    add_code_products(weights_of<W>(w, y, tile), x, token * blocks, tile.count, blocks, sums);
    write_tile(y, tile, sums);
}

#define MUL_MAT(type, W)                                                                          \
    KERNEL(mul_mat_##type##_f32, View w, View x, View y) { multiply<W, Number<float>>(w, x, y); } \
    KERNEL(mul_mat_##type##_f16, View w, View x, View y) { multiply<W, Number<half>>(w, x, y); }

#define MUL_MAT_OF_CODES(type, W)                                                     \
    KERNEL(mul_mat_##type, View w, unsigned char* x, Index blocks, View y) {          \
        multiply_codes<W>(w, Activations{x, blocks}, y);                              \
    }

MUL_MAT(f32, Number<float>)
MUL_MAT(f16, Number<half>)
MUL_MAT(bf16, Number<Bf16>)
MUL_MAT(q2_k, Q2_K)
MUL_MAT(q3_k, Q3_K)
MUL_MAT(q4_k, Q4_K)
MUL_MAT(q5_k, Q5_K)
MUL_MAT(q6_k, Q6_K)
MUL_MAT(iq4_nl, Iq4_nl)
MUL_MAT(iq4_xs, Iq4_xs)
MUL_MAT(mxfp4, Mxfp4)
MUL_MAT(nvfp4, Nvfp4)
MUL_MAT(tq1_0, Tq1_0)
MUL_MAT(tq2_0, Tq2_0)

// Each code decoded, with x as it is.
MUL_MAT(q4_0, Q4_0)
MUL_MAT(q4_1, Q4_1)
MUL_MAT(q5_0, Q5_0)
MUL_MAT(q5_1, Q5_1)
MUL_MAT(q8_0, Q8_0)
MUL_MAT(q8_1, Q8_1)

MUL_MAT_OF_CODES(q4_0, Q4_0)
MUL_MAT_OF_CODES(q4_1, Q4_1)
MUL_MAT_OF_CODES(q5_0, Q5_0)
MUL_MAT_OF_CODES(q5_1, Q5_1)
MUL_MAT_OF_CODES(q8_0, Q8_0)
MUL_MAT_OF_CODES(q8_1, Q8_1)
