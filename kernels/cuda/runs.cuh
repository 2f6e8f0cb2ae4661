// Eight neighbors of a row of blocks, decoded together: their scale is computed once.
#pragma once

#include "blocks.cuh"

constexpr int RUN = 8;

// Run number `run` of a block: all its elements are of one part, and the bits of each stand one byte after those of
// the one before, so that all are found as the first one is.
template <class F>
DEVICE void decode_run(Lined<F>, const unsigned char* block, unsigned run, float (&elements)[RUN]) {
    const Line line = F::line(block, (int)(run * RUN));
#pragma unroll
    for (unsigned i = 0; i < RUN; i++) elements[i] = line.scale * (float)F::code(block + i, (int)(run * RUN)) - line.minimum;
}

// The last elements of a block lie in four bytes.
DEVICE void decode_run(Lined<Tq1_0>, const unsigned char* block, unsigned run, float (&elements)[RUN]) {
    const Line line = Tq1_0::line(block, 0);
#pragma unroll
    for (unsigned i = 0; i < RUN; i++) elements[i] = line.scale * (float)Tq1_0::code(block, (int)(run * RUN + i));
}

template <class F>
DEVICE void decode_run(Coded<F>, const unsigned char* block, unsigned run, float (&elements)[RUN]) {
    const int codes[2] = {F::codes(block, (int)(run * 2)), F::codes(block, (int)(run * 2 + 1))};
    const float scale = F::scale(block);
#pragma unroll
    for (int i = 0; i < RUN; i++) {
        const float product = scale * (float)(signed char)((unsigned)codes[i / 4] >> (i % 4 * 8));
        elements[i] = F::MINIMUM ? product + F::minimum(block) : product;
    }
}
