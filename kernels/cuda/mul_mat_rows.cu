// y[m, n, i, j] = sum_k w[k, m, i / (n2 / b2), j / (n3 / b3)] x[k, n, i, j] for few tokens: as mul_mat.cu, with weights
// in planes (split_blocks.cuh) or plain numbers in rows that begin at multiples of 16 bytes.
//
//   w [K, M, b2, b3]      x [K, N, n2, n3] as quantize_q8_1 leaves it, or f32 in such rows      y f32 [M, N, n2, n3]
//
// A warp takes neighbouring rows and as many tokens as stand behind the kernel's name, again and again until all rows
// are taken.
#include "row_products.cuh"

template <class S, int ROWS, int TOKENS>
DEVICE void multiply_split(const View& w, const Planes& planes, const Activations& x, const View& y) {
    RowTile<ROWS, TOKENS> tile = first_tile<ROWS, TOKENS>(y);
    const Index matrix = matrix_distance(w, y, tile.i2, tile.i3);
    const unsigned blocks = (unsigned)(w.sizes[0] / ACTIVATIONS);
    Index tokens[TOKENS];
    find_tokens(y, tile, blocks, tokens);
    const auto find_rows = [&](Planes (&rows)[ROWS]) {
        for (int r = 0; r < ROWS; r++) rows[r] = planes_at<S>(planes, matrix + tile.row_at(r) * w.steps[1]);
    };
    Planes rows[ROWS];
    find_rows(rows);
    prefetch_rows(rows, blocks);
    wait_for_turn();
    for (; tile.row < tile.rows; tile.row += rows_of_grid<ROWS>()) {
        find_rows(rows);
        float sums[TOKENS][ROWS] = {};
        add_split_products<S>(rows, x, tokens, blocks, sums);
        write_own(y, tile, own_sum<ROWS>(sums));
    }
}

template <class T, int ROWS, int TOKENS>
DEVICE void multiply_runs(const View& w, const View& x, const View& y) {
    RowTile<ROWS, TOKENS> tile = first_tile<ROWS, TOKENS>(y);
    const T* const matrix = cells<T>(w) + matrix_distance(w, y, tile.i2, tile.i3);
    const float* tokens[TOKENS];
    find_tokens(x, tile, tokens);
    const auto find_rows = [&](const T* (&rows)[ROWS]) {
        for (int r = 0; r < ROWS; r++) rows[r] = matrix + tile.row_at(r) * w.steps[1];
    };
    const T* rows[ROWS];
    find_rows(rows);
    prefetch_rows<T>(rows, (unsigned)w.sizes[0]);
    wait_for_turn();
    for (; tile.row < tile.rows; tile.row += rows_of_grid<ROWS>()) {
        find_rows(rows);
        float sums[TOKENS][ROWS] = {};
        run_products<T>(rows, tokens, (unsigned)w.sizes[0], sums);
        write_own(y, tile, own_sum<ROWS>(sums));
    }
}

// What is loaded of x serves all rows that a warp takes: `rows_of_warp` in the device's matrix.rs has their number too.
#define MUL_MAT_SPLIT_OF(type, S, ROWS, TOKENS)                                                                                        \
    KERNEL(mul_mat_rows_##type##_##TOKENS, View w, unsigned char* rest, unsigned char* heads, unsigned char* x, Index blocks, View y) { \
        multiply_split<S, ROWS, TOKENS>(w, Planes{w.data, rest, heads}, Activations{x, blocks}, y);                                    \
    }

#define MUL_MAT_SPLIT(type, S)        \
    MUL_MAT_SPLIT_OF(type, S, 2, 1)   \
    MUL_MAT_SPLIT_OF(type, S, 2, 2)   \
    MUL_MAT_SPLIT_OF(type, S, 4, 4)   \
    MUL_MAT_SPLIT_OF(type, S, 4, 8)

#define MUL_MAT_RUNS_OF(type, T, ROWS, TOKENS) \
    KERNEL(mul_mat_rows_##type##_##TOKENS, View w, View x, View y) { multiply_runs<T, ROWS, TOKENS>(w, x, y); }

#define MUL_MAT_RUNS(type, T)         \
    MUL_MAT_RUNS_OF(type, T, 2, 1)    \
    MUL_MAT_RUNS_OF(type, T, 2, 2)    \
    MUL_MAT_RUNS_OF(type, T, 2, 4)

FOR_EACH_SPLIT(MUL_MAT_SPLIT)
MUL_MAT_RUNS(f32, float)
MUL_MAT_RUNS(f16, half)
MUL_MAT_RUNS(bf16, Bf16)
