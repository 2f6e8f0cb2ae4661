// y[m, u, t] = sum_k w[k, m, ids[u, t]] x[k, u, t]: w [K, M, experts] of any stored type, x [K, used, tokens] f32 or
// f16, or [K, 1, tokens] where all experts of a token see the same, ids i32 [used, tokens], y f32 [M, used, tokens].
//
// A warp for each element of y, with the sums of mul_mat; neighbouring warps take neighbouring rows. Of weights in
// planes (split_blocks.cuh) it takes two rows.
#include "products.cuh"
#include "row_products.cuh"

// What a warp multiplies. No row behind the last element, and of an expert that does not exist.
struct Element {
    Index row, used, token, expert;
    bool exists;
};

DEVICE Element element_of_warp(const View& w, const View& ids, const View& y, Fault* fault) {
    Index number = thread_number() / WARP;
    Element element;
    element.row = number % y.sizes[0], number /= y.sizes[0];
    element.used = number % y.sizes[1], element.token = number / y.sizes[1];
    element.exists = element.token < y.sizes[2];
    if (!element.exists) return element;
    element.expert = integer_at(ids, element.used, element.token);
    element.exists = lies_within(element.expert, w.sizes[2], fault);
    return element;
}

DEVICE void write_element(const View& y, const Element& element, float share) {
    const float sum = warp_sum(share);
    const Index place = element.row * y.steps[0] + element.used * y.steps[1] + element.token * y.steps[2];
    if (threadIdx.x % WARP == 0) cells_to_write<float>(y)[place] = sum;
}

template <class W, class X>
DEVICE void multiply(const View& w, const View& x, const View& ids, const View& y, Fault* fault) {
    wait_for_turn();
    const Element element = element_of_warp(w, ids, y, fault);
    if (!element.exists) return;
    const Row<W> row = row_at<W>(w, element.row * w.steps[1] + element.expert * w.steps[2]);
    const Row<X> token = row_at<X>(x, element.used % x.sizes[1] * x.steps[1] + element.token * x.steps[2]);
    float sums[1] = {};
    add_products(row, token, 0, 1, w.sizes[0], sums);
    write_element(y, element, sums[0]);
}

// `seen` is the second size of x.
template <class W>
DEVICE void multiply_codes(const View& w, const Activations& x, Index seen, const View& ids, const View& y, Fault* fault) {
    wait_for_turn();
    const Element element = element_of_warp(w, ids, y, fault);
    if (!element.exists) return;
    const Row<W> row = row_at<W>(w, element.row * w.steps[1] + element.expert * w.steps[2]);
    const Index blocks = w.sizes[0] / ACTIVATIONS, column = element.used % seen + seen * element.token;
    float sums[1] = {};
    add_code_products(row, x, column * blocks, 1, blocks, sums);
    write_element(y, element, sums[0]);
}

constexpr int ROWS = 2;

// Blocks of the grid take what tokens use along x, groups of rows along y, again and again until all rows are taken.
template <class S>
DEVICE void multiply_split(const View& w, const Planes& planes, const Activations& x, unsigned seen, const View& ids, const View& y, Fault* fault) {
    wait_for_turn();
    const unsigned rows = (unsigned)y.sizes[0], count = (unsigned)y.sizes[1], used = blockIdx.x % count, token = blockIdx.x / count;
    const unsigned warps = blockDim.x / WARP, blocks = (unsigned)(w.sizes[0] / ACTIVATIONS);
    const Index expert = integer_at(ids, used, token);
    if (!lies_within(expert, w.sizes[2], fault)) return;
    const Index tokens[1] = {(Index)(used % seen + seen * token) * blocks};
    for (unsigned row = (blockIdx.y * warps + threadIdx.x / WARP) * ROWS; row < rows; row += gridDim.y * warps * ROWS) {
        Planes of_rows[ROWS];
        for (int r = 0; r < ROWS; r++) {
            of_rows[r] = planes_at<S>(planes, min(row + (unsigned)r, rows - 1) * w.steps[1] + expert * w.steps[2]);
        }
        float sums[1][ROWS] = {};
        add_split_products<S>(of_rows, x, tokens, blocks, sums);
        for (int r = 0; r < ROWS; r++) {
            const float sum = warp_sum(sums[0][r]);
            const Index place = (row + r) * y.steps[0] + used * y.steps[1] + token * y.steps[2];
            if ((int)(threadIdx.x % WARP) == r && row + r < rows) cells_to_write<float>(y)[place] = sum;
        }
    }
}

#define MUL_MAT_ID(type, W)                                                                    \
    KERNEL(mul_mat_id_##type##_f32, View w, View x, View ids, View y, Fault* fault) {          \
        multiply<W, Number<float>>(w, x, ids, y, fault);                                       \
    }                                                                                          \
    KERNEL(mul_mat_id_##type##_f16, View w, View x, View ids, View y, Fault* fault) {          \
        multiply<W, Number<half>>(w, x, ids, y, fault);                                        \
    }

#define MUL_MAT_ID_OF_CODES(type, W)                                                                                  \
    KERNEL(mul_mat_id_##type, View w, unsigned char* x, Index blocks, Index seen, View ids, View y, Fault* fault) { \
        multiply_codes<W>(w, Activations{x, blocks}, seen, ids, y, fault);                                          \
    }

MUL_MAT_ID(f32, Number<float>)
MUL_MAT_ID(f16, Number<half>)
MUL_MAT_ID(bf16, Number<Bf16>)
MUL_MAT_ID(q2_k, Q2_K)
MUL_MAT_ID(q3_k, Q3_K)
MUL_MAT_ID(q4_k, Q4_K)
MUL_MAT_ID(q5_k, Q5_K)
MUL_MAT_ID(q6_k, Q6_K)
MUL_MAT_ID(iq4_nl, Iq4_nl)
MUL_MAT_ID(iq4_xs, Iq4_xs)
MUL_MAT_ID(mxfp4, Mxfp4)
MUL_MAT_ID(nvfp4, Nvfp4)
MUL_MAT_ID(tq1_0, Tq1_0)
MUL_MAT_ID(tq2_0, Tq2_0)

// Each code decoded, with x as it is.
MUL_MAT_ID(q4_0, Q4_0)
MUL_MAT_ID(q4_1, Q4_1)
MUL_MAT_ID(q5_0, Q5_0)
MUL_MAT_ID(q5_1, Q5_1)
MUL_MAT_ID(q8_0, Q8_0)
MUL_MAT_ID(q8_1, Q8_1)

MUL_MAT_ID_OF_CODES(q4_0, Q4_0)
MUL_MAT_ID_OF_CODES(q4_1, Q4_1)
MUL_MAT_ID_OF_CODES(q5_0, Q5_0)
MUL_MAT_ID_OF_CODES(q5_1, Q5_1)
MUL_MAT_ID_OF_CODES(q8_0, Q8_0)
MUL_MAT_ID_OF_CODES(q8_1, Q8_1)

#define MUL_MAT_ID_SPLIT(type, S)                                                                                               \
    KERNEL(mul_mat_id_rows_##type, View w, unsigned char* rest, unsigned char* heads, unsigned char* x, Index blocks, Index seen, \
           View ids, View y, Fault* fault) {                                                                                    \
        multiply_split<S>(w, Planes{w.data, rest, heads}, Activations{x, blocks}, (unsigned)seen, ids, y, fault);               \
    }

FOR_EACH_SPLIT(MUL_MAT_ID_SPLIT)
