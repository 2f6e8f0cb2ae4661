// Activations in 8 bits, as products with blocks of 32 codes take them.
//
//   scale = max |x| / 127,  codes = round(x / scale), halves to even,  sum = scale * (sum of the codes)
//
// It is q8_1 with scale and sum in f32: the sum is that of the codes, not of x, so that offsets of weights cancel. Of
// all blocks behind each other lie, so that the lanes of a warp read neighbouring bytes:
//
//   codes 0 to 15, 16 bytes each │ codes 16 to 31, 16 bytes each │ scale and total of the codes, 8 bytes each
#pragma once

#include "device.cuh"

constexpr int ACTIVATIONS = 32;

struct ActivationHead {
    float scale;
    int total;
};

// Blocks of activations; `planes` is a multiple of 16.
struct Activations {
    unsigned char* planes;
    // Of all planes.
    Index blocks;
};

// Codes 4 i to 4 i + 3 in word i, the first lowest.
DEVICE void load_activation_codes(const Activations& x, Index block, int (&codes)[8]) {
    const int4* const planes = reinterpret_cast<const int4*>(x.planes);
    const int4 low = planes[block], high = planes[x.blocks + block];
    codes[0] = low.x, codes[1] = low.y, codes[2] = low.z, codes[3] = low.w;
    codes[4] = high.x, codes[5] = high.y, codes[6] = high.z, codes[7] = high.w;
}

DEVICE ActivationHead load_activation_head(const Activations& x, Index block) {
    const int2 head = reinterpret_cast<const int2*>(x.planes + x.blocks * ACTIVATIONS)[block];
    return ActivationHead{__int_as_float(head.x), head.y};
}

// scale * (sum of the codes)
DEVICE float sum_of(const ActivationHead& head) {
    return head.scale * (float)head.total;
}

// By the 32 lanes of a warp, a code each; the head by the first.
DEVICE void store_activation(const Activations& x, Index block, int lane, int code, const ActivationHead& head) {
    x.planes[(lane / 16 * x.blocks + block) * 16 + lane % 16] = (unsigned char)code;
    if (lane == 0) reinterpret_cast<ActivationHead*>(x.planes + x.blocks * ACTIVATIONS)[block] = head;
}

// The scale of a block whose largest magnitude has this pattern: patterns are ordered as magnitudes are, with NaN above
// infinity.
DEVICE float activation_scale(int pattern) {
    return __int_as_float(pattern) / 127.0f;
}

// Below 127 of the smallest numbers the scale is zero, and so are the codes.
DEVICE int activation_code(float value, float scale) {
    const float quotient = scale == 0.0f ? 0.0f : value / scale;
    return (int)rintf(fminf(fmaxf(quotient, -127.0f), 127.0f));
}

// Block `block` by the 32 lanes of a warp, a number each.
DEVICE void store_activation_of_warp(const Activations& x, Index block, float value) {
    int pattern = __float_as_int(value) & 0x7fffffff;
    for (int distance = WARP / 2; distance > 0; distance /= 2) pattern = max(pattern, __shfl_xor_sync(ALL_LANES, pattern, distance));
    const float scale = activation_scale(pattern);
    const int code = activation_code(value, scale);
    int total = code;
    for (int distance = WARP / 2; distance > 0; distance /= 2) total += __shfl_xor_sync(ALL_LANES, total, distance);
    store_activation(x, block, threadIdx.x % WARP, code, ActivationHead{scale, total});
}

// Four activations of a lane, number `four` of all: the eight lanes of a block stand next to each other and come
// together.
DEVICE void store_four_activations(const Activations& x, Index four, const float4& values) {
    const float all[4] = {values.x, values.y, values.z, values.w};
    const unsigned lanes = 0xffu << (threadIdx.x % WARP / 8 * 8);
    int pattern = 0, total = 0;
    unsigned word = 0;
    for (int i = 0; i < 4; i++) pattern = max(pattern, __float_as_int(all[i]) & 0x7fffffff);
    for (int distance = 4; distance > 0; distance /= 2) pattern = max(pattern, __shfl_xor_sync(lanes, pattern, distance));
    const float scale = activation_scale(pattern);
    for (int i = 0; i < 4; i++) {
        const int code = activation_code(all[i], scale);
        total += code;
        word |= (unsigned)(code & 255) << 8 * i;
    }
    for (int distance = 4; distance > 0; distance /= 2) total += __shfl_xor_sync(lanes, total, distance);
    const Index block = four / 8;
    const int place = (int)(four % 8);
    reinterpret_cast<unsigned*>(x.planes)[(place / 4 * x.blocks + block) * 4 + place % 4] = word;
    if (place == 0) reinterpret_cast<ActivationHead*>(x.planes + x.blocks * ACTIVATIONS)[block] = ActivationHead{scale, total};
}
