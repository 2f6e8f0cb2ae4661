// y[m, n, i, j] = f((gate x)[m, n, i, j]) (up x)[m, n, i, j] for few tokens: both products as mul_mat_rows.cu has them,
// by one warp, and the function of gated.cu behind them.
//
//   gate, up [K, M, b2, b3] of one type      x [K, N, n2, n3] as quantize_q8_1 leaves it, or f32      y f32 [M, N, n2,
//                                            n3]
//
// Where `codes` is not 0, there go the bytes that quantize_q8_1 gives for y [M, N], M a multiple of 32, N no more than
// the kernel's tokens (tail.cuh).
#include "activations.cuh"
#include "row_products.cuh"
#include "tail.cuh"

// Sums of rows of the gate, and behind them of as many of up.
template <int ROWS, int TOKENS>
DEVICE void write_gated(const View& y, const RowTile<ROWS, TOKENS>& tile, int function, const float (&sums)[TOKENS][2 * ROWS]) {
    const float gate = own_sum<ROWS>(sums), up = own_sum<ROWS, ROWS>(sums);
    write_own(y, tile, activated(function, gate) * up);
}

template <class S, int ROWS, int TOKENS>
DEVICE void multiply_split(const View& gate, const Planes& of_gate, const View& up, const Planes& of_up, const Activations& x, const View& y,
                           int function, unsigned char* codes, unsigned* counters) {
    RowTile<ROWS, TOKENS> tile = first_tile<ROWS, TOKENS>(y);
    const Index gate_matrix = matrix_distance(gate, y, tile.i2, tile.i3), up_matrix = matrix_distance(up, y, tile.i2, tile.i3);
    const unsigned blocks = (unsigned)(gate.sizes[0] / ACTIVATIONS);
    Index tokens[TOKENS];
    find_tokens(y, tile, blocks, tokens);
    const auto find_rows = [&](Planes (&rows)[2 * ROWS]) {
        for (int r = 0; r < ROWS; r++) {
            rows[r] = planes_at<S>(of_gate, gate_matrix + tile.row_at(r) * gate.steps[1]);
            rows[ROWS + r] = planes_at<S>(of_up, up_matrix + tile.row_at(r) * up.steps[1]);
        }
    };
    Planes rows[2 * ROWS];
    find_rows(rows);
    prefetch_rows(rows, blocks);
    wait_for_turn();
    for (; tile.row < tile.rows; tile.row += rows_of_grid<ROWS>()) {
        find_rows(rows);
        float sums[TOKENS][2 * ROWS] = {};
        add_split_products<S>(rows, x, tokens, blocks, sums);
        write_gated(y, tile, function, sums);
    }
    if (codes == nullptr) return;
    const unsigned first = first_tile<ROWS, TOKENS>(y).row;
    finish_codes<ROWS, TOKENS>(y, first, rows_of_grid<ROWS>(), codes, counters);
}

template <class T, int ROWS, int TOKENS>
DEVICE void multiply_runs(const View& gate, const View& up, const View& x, const View& y, int function) {
    RowTile<ROWS, TOKENS> tile = first_tile<ROWS, TOKENS>(y);
    const T* const gate_matrix = cells<T>(gate) + matrix_distance(gate, y, tile.i2, tile.i3);
    const T* const up_matrix = cells<T>(up) + matrix_distance(up, y, tile.i2, tile.i3);
    const float* tokens[TOKENS];
    find_tokens(x, tile, tokens);
    const auto find_rows = [&](const T* (&rows)[2 * ROWS]) {
        for (int r = 0; r < ROWS; r++) {
            rows[r] = gate_matrix + tile.row_at(r) * gate.steps[1];
            rows[ROWS + r] = up_matrix + tile.row_at(r) * up.steps[1];
        }
    };
    const T* rows[2 * ROWS];
    find_rows(rows);
    prefetch_rows<T>(rows, (unsigned)gate.sizes[0]);
    wait_for_turn();
    for (; tile.row < tile.rows; tile.row += rows_of_grid<ROWS>()) {
        find_rows(rows);
        float sums[TOKENS][2 * ROWS] = {};
        run_products<T>(rows, tokens, (unsigned)gate.sizes[0], sums);
        write_gated(y, tile, function, sums);
    }
}

#define GATED_SPLIT_OF(type, S, ROWS, TOKENS)                                                                                        \
    KERNEL(mul_mat_gated_##type##_##TOKENS, View gate, unsigned char* gate_rest, unsigned char* gate_heads, View up,                 \
           unsigned char* up_rest, unsigned char* up_heads, unsigned char* x, Index blocks, View y, int function,                    \
           unsigned char* codes, unsigned* counters) {                                                                               \
        const Planes of_gate{gate.data, gate_rest, gate_heads}, of_up{up.data, up_rest, up_heads};                                   \
        multiply_split<S, ROWS, TOKENS>(gate, of_gate, up, of_up, Activations{x, blocks}, y, function, codes, counters);             \
    }

// Half the rows of mul_mat_rows: there are two matrices.
#define GATED_SPLIT(type, S)        \
    GATED_SPLIT_OF(type, S, 1, 1)   \
    GATED_SPLIT_OF(type, S, 1, 2)   \
    GATED_SPLIT_OF(type, S, 2, 4)   \
    GATED_SPLIT_OF(type, S, 2, 8)

#define GATED_RUNS_OF(type, T, ROWS, TOKENS)                                                         \
    KERNEL(mul_mat_gated_##type##_##TOKENS, View gate, View up, View x, View y, int function) {      \
        multiply_runs<T, ROWS, TOKENS>(gate, up, x, y, function);                                    \
    }

#define GATED_RUNS(type, T)         \
    GATED_RUNS_OF(type, T, 1, 1)    \
    GATED_RUNS_OF(type, T, 1, 2)    \
    GATED_RUNS_OF(type, T, 1, 4)

FOR_EACH_SPLIT(GATED_SPLIT)
GATED_RUNS(f32, float)
GATED_RUNS(f16, half)
GATED_RUNS(bf16, Bf16)
