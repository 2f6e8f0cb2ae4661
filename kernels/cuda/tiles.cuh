// Tiles of a product by tensor cores: which rows and tokens a block of threads, a warp and a thread have.
//
//   a block of threads   128 rows and 64 tokens by 8 warps; with two matrices 64 rows of each
//   a warp               32 rows (with two matrices 16 of each) and 32 tokens: 2 x 4 results of mma, 16 x 8 each
//   a thread             with g = lane / 4 and t = lane % 4, of each 16 x 8: rows g and g + 8 of tokens 2 t and 2 t + 1
//
// Operands lie in shared memory in pieces of 16 bytes along K, those of neighbouring rows behind each other: word t of
// the piece of row g is what mma takes, and the 32 words that a warp loads lie in as many banks.
#pragma once

#include "matrices.cuh"
#include "ptx.cuh"

constexpr int TILE_ROWS = 128, TILE_TOKENS = 64;

// Word `word` of what lies at a place.
DEVICE unsigned word_of(const uint4& place, int word) {
    return reinterpret_cast<const unsigned*>(&place)[word];
}

// Where a tile begins.
struct Corner {
    unsigned row, token, i2, i3;
};

template <int MATRICES>
DEVICE Corner corner_of(const View& y) {
    const unsigned n2 = (unsigned)y.sizes[2];
    return Corner{blockIdx.x * (TILE_ROWS / MATRICES), blockIdx.y * TILE_TOKENS, blockIdx.z % n2, blockIdx.z / n2};
}

// How far into its matrix row r of a tile lies: with two matrices, each warp's 32 rows are 16 of the first and the same
// of the second.
template <int MATRICES>
DEVICE unsigned row_in_tile(int r) {
    return MATRICES == 1 ? r : r / 32 * 16 + r % 16;
}

// The rows and the tokens of this warp in its tile.
DEVICE int warp_row() { return threadIdx.x / WARP % 4 * 32; }
DEVICE int warp_token() { return threadIdx.x / WARP / 4 * 32; }

// Writes `value(m, n, i)` where number i of tile m, n of this warp belongs.
template <int MATRICES, class Value>
DEVICE void write_tile(const View& y, const Corner& corner, Value value) {
    const int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    float* const batch = cells_to_write<float>(y) + (corner.i2 * y.steps[2] + corner.i3 * y.steps[3]);
#pragma unroll
    for (int m = 0; m < 2 / MATRICES; m++) {
#pragma unroll
        for (int n = 0; n < 4; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const unsigned row = corner.row + row_in_tile<MATRICES>(warp_row() + 16 * m + g + i / 2 * 8);
                const unsigned token = corner.token + warp_token() + 8 * n + 2 * t + i % 2;
                if (row < y.sizes[0] && token < y.sizes[1]) batch[row * y.steps[0] + token * y.steps[1]] = value(m, n, i);
            }
        }
    }
}
