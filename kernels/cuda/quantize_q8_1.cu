// Rows of activations become blocks of 8 bits (activation_blocks.cuh): x [K, ...] f32 or f16 with K a multiple of 32,
// blocks row by row. A warp for each block.
#include "activation_blocks.cuh"
#include "ptx.cuh"

template <class X>
DEVICE void quantize(const View& x, const Activations& blocks) {
    wait_for_turn();
    const Index number = thread_number() / WARP, in_row = x.sizes[0] / ACTIVATIONS;
    if (number >= blocks.blocks) return;
    const Index k = number % in_row * ACTIVATIONS + threadIdx.x % WARP;
    store_activation_of_warp(blocks, number, to_float(cells<X>(x)[row_distance(x, number / in_row) + k * x.steps[0]]));
}

KERNEL(quantize_q8_1_f32, View x, unsigned char* planes) { quantize<float>(x, Activations{planes, elements(x) / ACTIVATIONS}); }
KERNEL(quantize_q8_1_f16, View x, unsigned char* planes) { quantize<half>(x, Activations{planes, elements(x) / ACTIVATIONS}); }
