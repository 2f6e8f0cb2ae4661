// Products of a few neighbouring rows of weights with a few tokens, by a warp: the fast way to what products.cuh sums,
// with many bytes of weights under way and each activation used for several rows.
//
//   blocks of 32 codes   block b to lane b mod 32, as in products.cuh: the same bits
//   plain numbers        16 bytes a load, R numbers: element k to sum k mod R of lane (k / R) mod 32, which is sum k
//                        mod 32 R of all; the sums of
//                        a lane are added one after the other, then lanes as warp_sum does
#pragma once

#include "activation_blocks.cuh"
#include "matrices.cuh"
#include "split_blocks.cuh"

// The planes from element `distance` of a tensor on, at the beginning of a block.
template <class S>
DEVICE Planes planes_at(const Planes& planes, Index distance) {
    const Index b = distance / ACTIVATIONS;
    return Planes{planes.codes + b * 16, planes.rest + b * S::REST_BYTES, planes.heads + b * (int)sizeof(typename S::Head)};
}

// Adds to the sums of a token the products of a block.
template <class S, int ROWS>
DEVICE void add_block(const int (&codes)[ROWS][8], const SplitBlock<S> (&blocks)[ROWS], const int (&of_token)[8],
                      const ActivationHead& head, float (&sums)[ROWS]) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        int sum = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) sum = __dp4a(codes[r][i], of_token[i], sum);
        // Exact, as if each code were less its offset.
        sum -= S::OFFSET * head.total;
        sums[r] = fmaf(scale_of(blocks[r].head) * head.scale, (float)sum, sums[r]);
        if (S::File::MINIMUM) sums[r] = fmaf(minimum_of(blocks[r].head), sum_of(head), sums[r]);
    }
}

// Adds this lane's share of the products of rows with tokens, whose blocks begin at `tokens`; a row has `blocks`.
template <class S, int ROWS, int TOKENS>
DEVICE void add_split_products(const Planes (&rows)[ROWS], const Activations& x, const Index (&tokens)[TOKENS], unsigned blocks,
                               float (&sums)[TOKENS][ROWS]) {
    // Steps whose weights are under way together: with few tokens there are registers for two.
    constexpr int DEPTH = TOKENS <= 2 ? 2 : 1;
    for (unsigned b = threadIdx.x % WARP; b < blocks; b += WARP * DEPTH) {
        SplitBlock<S> loaded[DEPTH][ROWS];
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                if (b + d * WARP < blocks) loaded[d][r] = load_split<S>(rows[r], b + d * WARP);
            }
        }
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            if (b + d * WARP >= blocks) continue;
            int codes[ROWS][8];
#pragma unroll
            for (int r = 0; r < ROWS; r++) S::unpack(loaded[d][r], codes[r]);
#pragma unroll
            for (int t = 0; t < TOKENS; t++) {
                int of_token[8];
                load_activation_codes(x, tokens[t] + (b + d * WARP), of_token);
                add_block<S>(codes, loaded[d], of_token, load_activation_head(x, tokens[t] + (b + d * WARP)), sums[t]);
            }
        }
    }
}

// What a lane loads first of each of these rows, on its way while the launch before is at work.
template <int ROWS>
DEVICE void prefetch_rows(const Planes (&rows)[ROWS], unsigned blocks) {
    const unsigned lane = threadIdx.x % WARP;
    for (int r = 0; r < ROWS; r++) {
        if (lane < blocks) prefetch(rows[r].codes + lane * 16);
    }
}

// Four or eight plain numbers of 16 bytes.
template <class T>
struct Run;

template <>
struct Run<float> {
    static constexpr int LEN = 4;
    DEVICE void unpack(const uint4& packed, float (&numbers)[LEN]) {
        numbers[0] = __uint_as_float(packed.x), numbers[1] = __uint_as_float(packed.y);
        numbers[2] = __uint_as_float(packed.z), numbers[3] = __uint_as_float(packed.w);
    }
};

DEVICE float number_of(half, unsigned bits) { return __half2float(__ushort_as_half((unsigned short)bits)); }
DEVICE float number_of(Bf16, unsigned bits) { return to_float(Bf16{(unsigned short)bits}); }

template <class T>
struct Run {
    static constexpr int LEN = 8;
    DEVICE void unpack(const uint4& packed, float (&numbers)[LEN]) {
        const unsigned words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            numbers[2 * i] = number_of(T{}, words[i] & 0xffffu);
            numbers[2 * i + 1] = number_of(T{}, words[i] >> 16);
        }
    }
};

// As many activations; the address is a multiple of 16.
template <int LEN>
DEVICE void load_run(const float* x, float (&numbers)[LEN]) {
#pragma unroll
    for (int i = 0; i < LEN; i += 4) {
        const float4 four = *reinterpret_cast<const float4*>(x + i);
        numbers[i] = four.x, numbers[i + 1] = four.y, numbers[i + 2] = four.z, numbers[i + 3] = four.w;
    }
}

// This lane's share of the products of rows with tokens: rows and tokens begin at multiples of 16 bytes, their length
// is a multiple of a run.
template <class T, int ROWS, int TOKENS>
DEVICE void run_products(const T* const (&rows)[ROWS], const float* const (&tokens)[TOKENS], unsigned len, float (&sums)[TOKENS][ROWS]) {
    constexpr int LEN = Run<T>::LEN, DEPTH = TOKENS <= 2 ? 2 : 1;
    float parts[TOKENS][ROWS][LEN] = {};
    for (unsigned k = threadIdx.x % WARP * LEN; k < len; k += WARP * LEN * DEPTH) {
        uint4 loaded[DEPTH][ROWS];
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                if (k + d * WARP * LEN < len) loaded[d][r] = load_once_16(reinterpret_cast<const uint4*>(rows[r] + (k + d * WARP * LEN)));
            }
        }
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            if (k + d * WARP * LEN >= len) continue;
            float weights[ROWS][LEN];
#pragma unroll
            for (int r = 0; r < ROWS; r++) Run<T>::unpack(loaded[d][r], weights[r]);
#pragma unroll
            for (int t = 0; t < TOKENS; t++) {
                float x[LEN];
                load_run(tokens[t] + (k + d * WARP * LEN), x);
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
#pragma unroll
                    for (int i = 0; i < LEN; i++) parts[t][r][i] = fmaf(weights[r][i], x[i], parts[t][r][i]);
                }
            }
        }
    }
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
#pragma unroll
            for (int i = 0; i < LEN; i++) sums[t][r] += parts[t][r][i];
        }
    }
}

// As prefetch_rows of planes.
template <class T, int ROWS>
DEVICE void prefetch_rows(const T* const (&rows)[ROWS], unsigned len) {
    const unsigned first = threadIdx.x % WARP * Run<T>::LEN;
    for (int r = 0; r < ROWS; r++) {
        if (first < len) prefetch(rows[r] + first);
    }
}

// Which rows and tokens a warp takes: blocks of the grid take warps' groups of rows along x, groups of tokens along y,
// batches along z.
template <int ROWS, int TOKENS>
struct RowTile {
    unsigned row, token, i2, i3, rows, tokens;

    // The row of the tile, or the last one where there are no more.
    __device__ __forceinline__ unsigned row_at(int r) const { return min(row + (unsigned)r, rows - 1); }
    __device__ __forceinline__ unsigned token_at(int t) const { return min(token + (unsigned)t, tokens - 1); }
};

template <int ROWS, int TOKENS>
DEVICE RowTile<ROWS, TOKENS> first_tile(const View& y) {
    RowTile<ROWS, TOKENS> tile;
    tile.rows = (unsigned)y.sizes[0], tile.tokens = (unsigned)y.sizes[1];
    tile.row = (blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP) * ROWS;
    tile.token = blockIdx.y * TOKENS;
    const unsigned n2 = (unsigned)y.sizes[2];
    tile.i2 = n2 == 1 ? 0 : blockIdx.z % n2, tile.i3 = n2 == 1 ? blockIdx.z : blockIdx.z / n2;
    return tile;
}

// How far behind the tile's next one is: a grid that fills the card goes through all rows.
template <int ROWS>
DEVICE unsigned rows_of_grid() {
    return gridDim.x * (blockDim.x / WARP) * ROWS;
}

// Where the tokens of a tile begin among the blocks of all, of which a token has so many.
template <int ROWS, int TOKENS>
DEVICE void find_tokens(const View& y, const RowTile<ROWS, TOKENS>& tile, unsigned blocks, Index (&tokens)[TOKENS]) {
    const Index batch = y.sizes[1] * (tile.i2 + y.sizes[2] * tile.i3);
    for (int t = 0; t < TOKENS; t++) tokens[t] = (tile.token_at(t) + batch) * blocks;
}

// The same in f32 rows.
template <int ROWS, int TOKENS>
DEVICE void find_tokens(const View& x, const RowTile<ROWS, TOKENS>& tile, const float* (&tokens)[TOKENS]) {
    const float* const batch = cells<float>(x) + (tile.i2 * x.steps[2] + tile.i3 * x.steps[3]);
    for (int t = 0; t < TOKENS; t++) tokens[t] = batch + tile.token_at(t) * x.steps[1];
}

// Sums of a tile's rows and tokens over the warp: lane t ROWS + r keeps that of token t and of row r, counted from row
// FIRST of the sums on.
template <int ROWS, int FIRST = 0, int TOKENS, int ALL>
DEVICE float own_sum(const float (&sums)[TOKENS][ALL]) {
    const int lane = threadIdx.x % WARP;
    float own = 0.0f;
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const float sum = warp_sum(sums[t][FIRST + r]);
            if (lane == t * ROWS + r) own = sum;
        }
    }
    return own;
}

// Writes the results that lanes keep, of those rows and tokens that exist.
template <int ROWS, int TOKENS>
DEVICE void write_own(const View& y, const RowTile<ROWS, TOKENS>& tile, float own) {
    const unsigned lane = threadIdx.x % WARP, row = tile.row + lane % ROWS, token = tile.token + lane / ROWS;
    if (lane >= ROWS * TOKENS || row >= tile.rows || token >= tile.tokens) return;
    cells_to_write<float>(y)[row * y.steps[0] + token * y.steps[1] + tile.i2 * y.steps[2] + tile.i3 * y.steps[3]] = own;
}
