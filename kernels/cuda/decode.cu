// compute_80
// y[k, m] = w[k, m], decoded to f32 as the codec does and rounded to f16, to the nearest, halves to even: w [K, M] of
// any type of blocks, as in the file, y [K, M] without gaps from a multiple of 16 bytes on. Beyond 65504 a weight is
// infinite.
//
// For products by tensor cores (mul_mat_halves.cu). A thread takes 8 neighbours of a row, which it writes by one store.
#include "runs.cuh"

DEVICE uint4 packed(const float (&run)[RUN]) {
    __align__(16) half2 pairs[RUN / 2];
#pragma unroll
    for (int i = 0; i < RUN / 2; i++) pairs[i] = __floats2half2_rn(run[2 * i], run[2 * i + 1]);
    return *reinterpret_cast<const uint4*>(pairs);
}

// A view has fewer than 2^31 runs: what is decoded at once is bounded.
template <class F>
DEVICE void decode(const View& w, uint4* y) {
    constexpr unsigned RUNS = F::LEN / RUN;
    const unsigned number = blockIdx.x * blockDim.x + threadIdx.x, in_row = (unsigned)w.sizes[0] / RUN;
    const unsigned row = number / in_row, run = number % in_row;
    if (row >= w.sizes[1]) return;
    const Row<F> blocks = row_at<F>(w, row * w.steps[1]);
    float elements[RUN];
    decode_run(F(), blocks.block(run / RUNS), run % RUNS, elements);
    y[number] = packed(elements);
}

#define DECODE(type, F) \
    KERNEL(decode_##type, View w, uint4* y) { decode<F>(w, y); }

DECODE(q4_0, Q4_0)
DECODE(q4_1, Q4_1)
DECODE(q5_0, Q5_0)
DECODE(q5_1, Q5_1)
DECODE(q8_0, Q8_0)
DECODE(q8_1, Q8_1)
DECODE(q2_k, Q2_K)
DECODE(q3_k, Q3_K)
DECODE(q4_k, Q4_K)
DECODE(q5_k, Q5_K)
DECODE(q6_k, Q6_K)
DECODE(iq4_nl, Iq4_nl)
DECODE(iq4_xs, Iq4_xs)
DECODE(mxfp4, Mxfp4)
DECODE(nvfp4, Nvfp4)
DECODE(tq1_0, Tq1_0)
DECODE(tq2_0, Tq2_0)
