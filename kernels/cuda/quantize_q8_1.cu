// Rows of activations become blocks of 8 bits (activation_blocks.cuh): x [K, ...] f32 or f16 with K a multiple of 32, blocks row by row. A warp
// for each block.
#include "activation_blocks.cuh"

DEVICE int warp_largest(int x) {
    for (int distance = WARP / 2; distance > 0; distance /= 2) x = max(x, __shfl_xor_sync(ALL_LANES, x, distance));
    return x;
}

DEVICE int warp_total(int x) {
    for (int distance = WARP / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(ALL_LANES, x, distance);
    return x;
}

template <class X>
DEVICE void quantize(const View& x, const Activations& blocks) {
    const Index number = thread_number() / WARP, in_row = x.sizes[0] / ACTIVATIONS;
    const int lane = threadIdx.x % WARP;
    if (number >= blocks.blocks) return;
    const Index k = number % in_row * ACTIVATIONS + lane;
    const float value = to_float(cells<X>(x)[row_distance(x, number / in_row) + k * x.steps[0]]);
    // Patterns of magnitudes are ordered as the magnitudes are, with NaN above infinity.
    const float scale = __int_as_float(warp_largest(__float_as_int(value) & 0x7fffffff)) / 127.0f;
    // Below 127 of the smallest numbers the scale is zero, and so are the codes.
    const float quotient = scale == 0.0f ? 0.0f : value / scale;
    const int code = (int)rintf(fminf(fmaxf(quotient, -127.0f), 127.0f));
    const int total = warp_total(code);
    store_activation(blocks, number, lane, code, ActivationHead{scale, total});
}

KERNEL(quantize_q8_1_f32, View x, unsigned char* planes) { quantize<float>(x, Activations{planes, elements(x) / ACTIVATIONS}); }
KERNEL(quantize_q8_1_f16, View x, unsigned char* planes) { quantize<half>(x, Activations{planes, elements(x) / ACTIVATIONS}); }
