// compute_80
// y = w x as in mul_mat.cu for many tokens, by tensor cores on f16: w [K, M, b2, b3] f16 and x [K, N, n2, n3] rounded
// to f16 behind each other, K a multiple of 8 and rows from multiples of 16 bytes on; y f32 [M, N, n2, n3]. With two
// matrices, f(gate x) (up x) as in mul_mat_gated.cu.
//
//   a block of threads   a tile as tiles.cuh has it
//   a step               32 elements along K, in one of three stages of shared memory; two are on their way while one
//                        is multiplied
//
// Tensor cores cut off what does not fit into their sums: they add 64 products, whose sums are then added one after the
// other in f32. Rows, tokens and elements beyond the last are zero.
#include "activations.cuh"
#include "tiles.cuh"

constexpr int STAGES = 3;

// Pieces of 8 elements in a step, and steps whose sum tensor cores make.
constexpr int PIECE = 8, PIECES = 4, STEPS_AT_ONCE = 2;

// Distances in shared memory at which copies into it do not wait for each other's banks.
constexpr int ROW_PITCH = TILE_ROWS + 2, TOKEN_PITCH = TILE_TOKENS + 2;

// What is multiplied in a step. `matrix.rs` of the device knows the size.
struct Stage {
    uint4 rows[PIECES][ROW_PITCH];
    uint4 tokens[PIECES][TOKEN_PITCH];
};
static_assert(sizeof(Stage) * STAGES == 37632, "what the host asks for");

// A row or a token, or the first one in the place of one beyond the last.
struct Line {
    const half* first;
    bool exists;
};

// What a thread brings: of each step its piece of two rows, 64 from each other, and of a token.
struct Source {
    Line rows[2];
    Line token;
};

// Thread 4 r + p brings piece p of rows r and r + 64, and of token r.
DEVICE int own_row() { return threadIdx.x / PIECES; }
DEVICE int own_piece() { return threadIdx.x % PIECES; }

DEVICE void copy_step(Stage& stage, const Source& source, unsigned step, unsigned len) {
    const unsigned k = (step * PIECES + own_piece()) * PIECE, own = k < len ? k : 0;
    for (int h = 0; h < 2; h++) {
        copy_async_16(&stage.rows[own_piece()][own_row() + 64 * h], source.rows[h].first + own, k < len && source.rows[h].exists);
    }
    copy_async_16(&stage.tokens[own_piece()][own_row()], source.token.first + own, k < len && source.token.exists);
}

// Adds the products of what a stage holds.
DEVICE void multiply_stage(const Stage& stage, float (&parts)[2][4][4]) {
    const int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int p = 0; p < PIECES; p += 2) {
        unsigned a[2][4];
#pragma unroll
        for (int m = 0; m < 2; m++) {
#pragma unroll
            for (int i = 0; i < 4; i++) a[m][i] = word_of(stage.rows[p + i / 2][warp_row() + 16 * m + g + i % 2 * 8], t);
        }
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const int token = warp_token() + 8 * n + g;
            const unsigned b[2] = {word_of(stage.tokens[p][token], t), word_of(stage.tokens[p + 1][token], t)};
#pragma unroll
            for (int m = 0; m < 2; m++) mma_m16n8k16_f16(parts[m][n], a[m], b);
        }
    }
}

// Adds what tensor cores have added, which begin anew.
DEVICE void add_parts(float (&parts)[2][4][4], float (&sums)[2][4][4]) {
#pragma unroll
    for (int i = 0; i < 32; i++) {
        float& part = parts[i / 16][i / 4 % 4][i % 4];
        sums[i / 16][i / 4 % 4][i % 4] += part;
        part = 0.0f;
    }
}

// The sums of this warp's part of a tile.
DEVICE void multiply_tile(Stage* stages, const Source& source, unsigned len, float (&sums)[2][4][4]) {
    const unsigned steps = (len + PIECES * PIECE - 1) / (PIECES * PIECE);
    for (unsigned s = 0; s < STAGES - 1; s++) {
        copy_step(stages[s], source, s, len);
        copy_async_commit();
    }
    float parts[2][4][4] = {};
    for (unsigned s = 0; s < steps; s++) {
        // The copies of this step are there, and the stage of the step before is free.
        copy_async_wait<STAGES - 2>();
        __syncthreads();
        const unsigned next = s + STAGES - 1;
        copy_step(stages[next % STAGES], source, next, len);
        copy_async_commit();
        multiply_stage(stages[s % STAGES], parts);
        if (s % STEPS_AT_ONCE == STEPS_AT_ONCE - 1) add_parts(parts, sums);
    }
    add_parts(parts, sums);
}

// A row of a tile's matrix.
DEVICE Line row_of(const View& w, const View& y, const Corner& corner, unsigned row) {
    const bool exists = row < y.sizes[0];
    return Line{cells<half>(w) + (matrix_distance(w, y, corner.i2, corner.i3) + (exists ? row : 0) * w.steps[1]), exists};
}

// A token of a tile, of `len` elements.
DEVICE Line token_of(const half* x, const View& y, const Corner& corner, Index len) {
    const unsigned token = corner.token + own_row();
    const bool exists = token < y.sizes[1];
    return Line{x + (y.sizes[1] * (corner.i2 + y.sizes[2] * corner.i3) + (exists ? token : 0)) * len, exists};
}

DEVICE void multiply(const View& w, const half* x, const View& y) {
    DYNAMIC_SHARED(Stage, stages);
    const Corner corner = corner_of<1>(y);
    Source source;
    for (int h = 0; h < 2; h++) source.rows[h] = row_of(w, y, corner, corner.row + row_in_tile<1>(own_row() + 64 * h));
    source.token = token_of(x, y, corner, w.sizes[0]);
    float sums[2][4][4] = {};
    multiply_tile(stages, source, (unsigned)w.sizes[0], sums);
    write_tile<1>(y, corner, [&](int m, int n, int i) { return sums[m][n][i]; });
}

DEVICE void multiply_gated(const View& gate, const View& up, const half* x, const View& y, int function) {
    DYNAMIC_SHARED(Stage, stages);
    const Corner corner = corner_of<2>(y);
    Source source;
    for (int h = 0; h < 2; h++) {
        const int own = own_row() + 64 * h;
        const unsigned row = corner.row + row_in_tile<2>(own);
        const Line of_gate = row_of(gate, y, corner, row), of_up = row_of(up, y, corner, row);
        source.rows[h] = Line{own % 32 < 16 ? of_gate.first : of_up.first, of_gate.exists};
    }
    source.token = token_of(x, y, corner, gate.sizes[0]);
    float sums[2][4][4] = {};
    multiply_tile(stages, source, (unsigned)gate.sizes[0], sums);
    write_tile<2>(y, corner, [&](int, int n, int i) { return activated(function, sums[0][n][i]) * sums[1][n][i]; });
}

BOUNDED_KERNEL(256, 2, mul_mat_halves, View w, half* x, View y) { multiply(w, x, y); }
BOUNDED_KERNEL(256, 2, mul_mat_gated_halves, View gate, View up, half* x, View y, int function) { multiply_gated(gate, up, x, y, function); }
