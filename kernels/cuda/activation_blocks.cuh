// Activations in 8 bits, as products with blocks of 32 codes take them.
//
//   scale = max |x| / 127,  codes = round(x / scale), halves to even,  sum = scale * (sum of the codes)
//
// It is q8_1 with scale and sum in f32: the sum is that of the codes, not of x, so that offsets of weights cancel.
#pragma once

#include "device.cuh"

struct ActivationBlock {
    float scale, sum;
    // Four each, the first lowest.
    int codes[8];
};

constexpr int ACTIVATIONS = 32;
