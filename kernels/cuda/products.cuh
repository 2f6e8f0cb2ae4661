// Products of a row of weights with activations, by a warp, a few tokens at a time.
//
//   plain numbers                      element k to lane k mod 32, fused multiply-adds in f32
//   decoded blocks                     as many to each lane, but of each 256 elements, eight neighbors to a lane
//   blocks of 32 codes                 block b to lane b mod 32: integers within, then fmaf(d dx, sum(q c), .), and
//                                      where there is a minimum m
//                                      fmaf(m, dx sum(c), .)
//
// Lanes are then added as warp_sum does. A token's sum does not depend on what is multiplied beside it.
#pragma once

#include "activation_blocks.cuh"
#include "runs.cuh"

// Whether eight neighbors can be read by two loads: of all tokens that are `step` elements apart, from multiples of
// eight on.
template <class X>
DEVICE bool loads_fours(const Row<X>&, Index) {
    return false;
}

DEVICE bool loads_fours(const Row<Number<float>>& x, Index step) {
    return x.step == 1 && step % 4 == 0 && reinterpret_cast<unsigned long long>(x.first) % sizeof(float4) == 0;
}

// Elements k to k + 7, which `loads_fours` allows to read by two loads.
template <class X>
DEVICE void load_run(const Row<X>& x, Index k, bool by_fours, float (&run)[RUN]) {
    if (by_fours) {
        const float4* const fours = reinterpret_cast<const float4*>(x.first) + k / 4;
        const float4 low = fours[0], high = fours[1];
        run[0] = low.x, run[1] = low.y, run[2] = low.z, run[3] = low.w;
        run[4] = high.x, run[5] = high.y, run[6] = high.z, run[7] = high.w;
        return;
    }
#pragma unroll
    for (int i = 0; i < RUN; i++) run[i] = x[k + i];
}

// As add_products, of the first elements of a row of blocks, in runs of eight: the number of these elements, a multiple
// of 256.
template <class W, class X, int TOKENS>
DEVICE Index add_runs(const Row<W>& row, const Row<X>& x, Index step, int count, Index len, float (&sums)[TOKENS]) {
    constexpr unsigned RUNS = W::LEN / RUN;
    const unsigned all = row.step == 1 ? (unsigned)(len / (WARP * RUN)) * WARP : 0;
    const bool by_fours = loads_fours(x, step);
    for (unsigned run = threadIdx.x % WARP; run < all; run += WARP) {
        float weights[RUN], of_token[RUN];
        decode_run(W(), row.block(run / RUNS), run % RUNS, weights);
        for (int t = 0; t < TOKENS; t++) {
            if (t >= count) continue;
            load_run(x.behind(t * step), (Index)run * RUN, by_fours, of_token);
#pragma unroll
            for (int i = 0; i < RUN; i++) sums[t] = fmaf(weights[i], of_token[i], sums[t]);
        }
    }
    return (Index)all * RUN;
}

// Adds row . x to the sums of `count` tokens, this lane's share; neighbouring tokens are `step` elements apart.
template <class W, class X, int TOKENS>
DEVICE void add_products(const Row<W>& row, const Row<X>& x, Index step, int count, Index len, float (&sums)[TOKENS]) {
    Index first = 0;
    if constexpr (W::LEN > 1) first = add_runs(row, x, step, count, len, sums);
    for (Index k = first + threadIdx.x % WARP; k < len; k += WARP) {
        const float weight = row[k];
        for (int t = 0; t < TOKENS; t++) {
            if (t < count) sums[t] = fmaf(weight, x.behind(t * step)[k], sums[t]);
        }
    }
}

// The same by codes, of the tokens whose blocks begin at `first`; neighbouring tokens are `blocks` blocks apart, of
// which a row has as many.
template <class W, int TOKENS>
DEVICE void add_code_products(const Row<W>& row, const Activations& x, Index first, int count, Index blocks, float (&sums)[TOKENS]) {
    for (Index b = threadIdx.x % WARP; b < blocks; b += WARP) {
        const unsigned char* const block = row.block(b);
        const float scale = W::scale(block), minimum = W::MINIMUM ? W::minimum(block) : 0.0f;
        int codes[8];
        for (int i = 0; i < 8; i++) codes[i] = W::codes(block, i);
        for (int t = 0; t < TOKENS; t++) {
            if (t >= count) continue;
            int of_token[8], sum = 0;
            load_activation_codes(x, first + t * blocks + b, of_token);
            const ActivationHead head = load_activation_head(x, first + t * blocks + b);
            for (int i = 0; i < 8; i++) sum = __dp4a(codes[i], of_token[i], sum);
            sums[t] = fmaf(scale * head.scale, (float)sum, sums[t]);
            if (W::MINIMUM) sums[t] = fmaf(minimum, sum_of(head), sums[t]);
        }
    }
}
