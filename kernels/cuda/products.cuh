// Products of a row of weights with activations, by a warp, a few tokens at a time.
//
//   plain numbers and decoded blocks   element k to lane k mod 32, fused multiply-adds in f32
//   blocks of 32 codes                 block b to lane b mod 32: integers within, then fmaf(d dx, sum(q c), .), and
//                                      where there is a minimum m
//                                      fmaf(m, dx sum(c), .)
//
// Lanes are then added as warp_sum does. A token's sum does not depend on what is multiplied beside it.
#pragma once

#include "activation_blocks.cuh"
#include "blocks.cuh"

// Adds row . x to the sums of `count` tokens, this lane's share; neighbouring tokens are `step` elements apart.
template <class W, class X, int TOKENS>
DEVICE void add_products(const Row<W>& row, const Row<X>& x, Index step, int count, Index len, float (&sums)[TOKENS]) {
    for (Index k = threadIdx.x % WARP; k < len; k += WARP) {
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
