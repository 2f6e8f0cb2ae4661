// What is added to scores of attention: a mask [positions, tokens, ...], repeated along heads and batches, times the
// head's slope.
#pragma once

#include "device.cuh"

// What a mask is; as the host passes it.
enum MaskType { NO_MASK = 0, MASK_F32 = 1, MASK_F16 = 2 };

// One token's row for one head.
struct MaskRow {
    const unsigned char* first;
    Index step;
    int type;
    float slope;

    // What is added to the score of a position; -infinity, which no slope changes, hides it.
    __device__ __forceinline__ float operator[](Index position) const {
        if (type == NO_MASK) return 0.0f;
        const Index place = position * step;
        const float mask = type == MASK_F32 ? reinterpret_cast<const float*>(first)[place]
                                            : to_float(reinterpret_cast<const half*>(first)[place]);
        return mask == -INFINITY ? mask : slope * mask;
    }
};

// ALiBi's slope of a head: 1 where `max_bias` is 0, else, with n = 2^floor(log2 heads), 2^(-max_bias (h + 1) / n) for
// the first n heads and 2^(-max_bias (2 (h - n) + 1) / (2 n)) behind them.
DEVICE float slope_of(float max_bias, Index head, Index heads) {
    if (max_bias == 0.0f) return 1.0f;
    Index power = 1;
    while (2 * power <= heads) power *= 2;
    const Index halves = head < power ? 2 * head + 2 : 2 * (head - power) + 1;
    return exp2f(-max_bias * ((float)halves / (float)(2 * power)));
}

// Without a mask, any view may stand in its place.
DEVICE MaskRow mask_row(const View& mask, int type, Index token, Index head, Index batch, float slope) {
    const Index place = token * mask.steps[1] + head % mask.sizes[2] * mask.steps[2] + batch % mask.sizes[3] * mask.steps[3];
    return MaskRow{mask.data + (type == NO_MASK ? 0 : place * (type == MASK_F32 ? 4 : 2)), mask.steps[0], type, slope};
}
