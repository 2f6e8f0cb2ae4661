// Neighbouring steps of one token or two in one launch, each with the bits of mul_mat_rows.cu and arithmetic.cu:
//
//   three   y = w x, y' = w' x, y'' = w'' x: the projections of one x; there may be no third. Where `counters` is not
//           0, also what comes behind those for
//           queries, keys and values (heads.cuh), by the warp that wrote the last rows of a head
//   add     y = w x and s = y + a: a projection and what is added to it; where `counter` is not 0, also the norm of s
//           as rms_norm_wide has it, and where
//           `codes` is not 0 its codes, by the last block of threads (tail.cuh)
//
//   w [K, M] of 32 codes a block in planes (split_blocks.cuh), or plain in rows that begin at multiples of 16 bytes
//   x [K, N] as quantize_q8_1 leaves it, or f32
//   y, s f32 [M, N] without gaps between rows
//   a f32 [M, N], any strides, or the same for all tokens
//
// A warp takes neighbouring rows of one matrix and as many tokens as stand behind the kernel's name, again and again
// until all rows are taken.
#include "heads.cuh"
#include "row_products.cuh"

// Sums of rows and tokens of a matrix of blocks.
template <class S>
struct BlockRows {
    Planes planes;
    Index step;
    Activations x;
    unsigned blocks;

    template <int ROWS, int TOKENS>
    __device__ __forceinline__ void add(const RowTile<ROWS, TOKENS>& tile, float (&sums)[TOKENS][ROWS]) const {
        Planes rows[ROWS];
        Index tokens[TOKENS];
        for (int r = 0; r < ROWS; r++) rows[r] = planes_at<S>(planes, tile.row_at(r) * step);
        for (int t = 0; t < TOKENS; t++) tokens[t] = (Index)tile.token_at(t) * blocks;
        add_split_products<S>(rows, x, tokens, blocks, sums);
    }
};

// The same of plain numbers.
template <class T>
struct RunRows {
    const T* matrix;
    Index step;
    View x;

    template <int ROWS, int TOKENS>
    __device__ __forceinline__ void add(const RowTile<ROWS, TOKENS>& tile, float (&sums)[TOKENS][ROWS]) const {
        const T* rows[ROWS];
        const float* tokens[TOKENS];
        for (int r = 0; r < ROWS; r++) rows[r] = matrix + tile.row_at(r) * step;
        for (int t = 0; t < TOKENS; t++) tokens[t] = cells<float>(x) + tile.token_at(t) * x.steps[1];
        run_products<T>(rows, tokens, (unsigned)x.sizes[0], sums);
    }
};

template <int ROWS, int TOKENS>
DEVICE RowTile<ROWS, TOKENS> tile_of(unsigned row, unsigned rows, unsigned tokens) {
    RowTile<ROWS, TOKENS> tile;
    tile.row = row, tile.rows = rows, tile.token = blockIdx.y * TOKENS, tile.tokens = tokens, tile.i2 = tile.i3 = 0;
    return tile;
}

// `write(t, r, sum)` is called by one lane for each row and token that there is.
template <int ROWS, int TOKENS, class Matrix, class Write>
DEVICE void multiply(const Matrix& matrix, const RowTile<ROWS, TOKENS>& tile, Write write) {
    float sums[TOKENS][ROWS] = {};
    matrix.add(tile, sums);
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const float sum = warp_sum(sums[t][r]);
            if (lane == t * ROWS + r && tile.token + t < tile.tokens && tile.row + r < tile.rows) write(t, r, sum);
        }
    }
}

// The first group of rows of this warp, and how far behind it the next one is.
DEVICE unsigned first_group() { return blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP; }
DEVICE unsigned groups_of_grid() { return gridDim.x * (blockDim.x / WARP); }

// Groups of the first matrix, then of the second, then of the third; `matrix(i)` gives one.
template <int ROWS, int TOKENS, class Matrix>
DEVICE void multiply_three(const View& y0, const View& y1, const View& y2, Matrix matrix) {
    wait_for_turn();
    const unsigned groups0 = ((unsigned)y0.sizes[0] + ROWS - 1) / ROWS, groups1 = groups0 + ((unsigned)y1.sizes[0] + ROWS - 1) / ROWS;
    const unsigned groups2 = groups1 + ((unsigned)y2.sizes[0] + ROWS - 1) / ROWS, tokens = (unsigned)y0.sizes[1];
    for (unsigned group = first_group(); group < groups2; group += groups_of_grid()) {
        const int place = group < groups0 ? 0 : group < groups1 ? 1 : 2;
        const unsigned row = (group - (place == 0 ? 0 : place == 1 ? groups0 : groups1)) * ROWS;
        const unsigned rows = (unsigned)(place == 0 ? y0.sizes[0] : place == 1 ? y1.sizes[0] : y2.sizes[0]);
        const Index step = place == 0 ? y0.steps[1] : place == 1 ? y1.steps[1] : y2.steps[1];
        float* const y = reinterpret_cast<float*>(place == 0 ? y0.data : place == 1 ? y1.data : y2.data);
        const RowTile<ROWS, TOKENS> tile = tile_of<ROWS, TOKENS>(row, rows, tokens);
        multiply(matrix(place), tile, [&](int t, int r, float sum) { y[(tile.token + t) * step + row + r] = sum; });
    }
}

template <int ROWS, int TOKENS, class Matrix>
DEVICE void multiply_add(const Matrix& matrix, const View& y, const View& addend, const View& s, const NormTail& norm) {
    wait_for_turn();
    const Index addend_step = addend.sizes[1] == 1 ? 0 : addend.steps[1];
    for (unsigned group = first_group(); group * ROWS < (unsigned)y.sizes[0]; group += groups_of_grid()) {
        const RowTile<ROWS, TOKENS> tile = tile_of<ROWS, TOKENS>(group * ROWS, (unsigned)y.sizes[0], (unsigned)y.sizes[1]);
        multiply(matrix, tile, [&](int t, int r, float sum) {
            const Index row = tile.row + r, token = tile.token + t;
            cells_to_write<float>(y)[row + token * y.steps[1]] = sum;
            cells_to_write<float>(s)[row + token * s.steps[1]] = sum + cells<float>(addend)[row * addend.steps[0] + token * addend_step];
        });
    }
    finish_norm(norm, s);
}

#define GROUP_OF_BLOCKS(type, S, ROWS, TOKENS)                                                                                                   \
    KERNEL(mul_mat_three_##type##_##TOKENS, View w0, unsigned char* rest0, unsigned char* heads0, View w1, unsigned char* rest1,                 \
           unsigned char* heads1, View w2, unsigned char* rest2, unsigned char* heads2, unsigned char* x, Index blocks, View y0, View y1,        \
           View y2, HEADS_ARGUMENTS, unsigned* counters) {                                                                                       \
        multiply_three<ROWS, TOKENS>(y0, y1, y2, [&](int place) {                                                                                \
            const Planes planes{place == 0 ? w0.data : place == 1 ? w1.data : w2.data, place == 0 ? rest0 : place == 1 ? rest1 : rest2,          \
                                place == 0 ? heads0 : place == 1 ? heads1 : heads2};                                                             \
            const Index step = place == 0 ? w0.steps[1] : place == 1 ? w1.steps[1] : w2.steps[1];                                                \
            return BlockRows<S>{planes, step, Activations{x, blocks}, (unsigned)(w0.sizes[0] / ACTIVATIONS)};                                    \
        });                                                                                                                                      \
        finish_heads<ROWS>(q, k, v, behind, first_group() * ROWS, groups_of_grid() * ROWS, counters);                                            \
    }                                                                                                                                            \
    KERNEL(mul_mat_add_##type##_##TOKENS, View w, unsigned char* rest, unsigned char* heads, unsigned char* x, Index blocks, View y,             \
           View addend, View s, View norm_w, int norm_w_type, View norm_y, float epsilon, unsigned char* codes, unsigned* counter) {            \
        const Planes planes{w.data, rest, heads};                                                                                                \
        const BlockRows<S> rows{planes, w.steps[1], Activations{x, blocks}, (unsigned)(w.sizes[0] / ACTIVATIONS)};                               \
        multiply_add<ROWS, TOKENS>(rows, y, addend, s, NormTail{norm_w, norm_w_type, norm_y, epsilon, codes, counter});                         \
    }

// Rows and tokens as in mul_mat_rows.cu.
#define GROUP_SPLIT(type, S)        \
    GROUP_OF_BLOCKS(type, S, 2, 1)  \
    GROUP_OF_BLOCKS(type, S, 2, 2)

#define GROUP_OF_RUNS(type, T, ROWS, TOKENS)                                                                                                     \
    KERNEL(mul_mat_three_##type##_##TOKENS, View w0, View w1, View w2, View x, View y0, View y1, View y2, HEADS_ARGUMENTS, unsigned* counters) { \
        multiply_three<ROWS, TOKENS>(y0, y1, y2, [&](int place) {                                                                                \
            const T* const matrix = reinterpret_cast<const T*>(place == 0 ? w0.data : place == 1 ? w1.data : w2.data);                           \
            return RunRows<T>{matrix, place == 0 ? w0.steps[1] : place == 1 ? w1.steps[1] : w2.steps[1], x};                                     \
        });                                                                                                                                      \
        finish_heads<ROWS>(q, k, v, behind, first_group() * ROWS, groups_of_grid() * ROWS, counters);                                            \
    }                                                                                                                                            \
    KERNEL(mul_mat_add_##type##_##TOKENS, View w, View x, View y, View addend, View s, View norm_w, int norm_w_type, View norm_y, float epsilon, \
           unsigned char* codes, unsigned* counter) {                                                                                           \
        const NormTail norm{norm_w, norm_w_type, norm_y, epsilon, codes, counter};                                                              \
        multiply_add<ROWS, TOKENS>(RunRows<T>{cells<T>(w), w.steps[1], x}, y, addend, s, norm);                                                  \
    }

#define GROUP_RUNS(type, T)         \
    GROUP_OF_RUNS(type, T, 2, 1)    \
    GROUP_OF_RUNS(type, T, 2, 2)

FOR_EACH_SPLIT(GROUP_SPLIT)
GROUP_RUNS(f32, float)
GROUP_RUNS(f16, half)
GROUP_RUNS(bf16, Bf16)
