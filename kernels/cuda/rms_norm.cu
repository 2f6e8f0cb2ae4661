// y[i] = x[i] / sqrt(mean(x^2) + epsilon) w[i], for each innermost row; x [n, ...], w [n] of f32, f16 or bf16, y as x.
// A block for each row.
//
// Squares are summed by 256 threads, element k by thread k mod 256, and then over the block; in the kernels called
// wide, whose rows begin at multiples of 16 bytes and have no gaps, k / 4 mod 256. Those called codes write each row as
// activations in 8 bits too: the bytes that quantize_q8_1 gives for y.
#include "activation_blocks.cuh"
#include "fours.cuh"
#include "ptx.cuh"

template <class W>
DEVICE void rms_norm(const View& x, const View& w, const View& y, float epsilon) {
    wait_for_turn();
    DYNAMIC_SHARED(float, shared);
    const Index row = blockIdx.x, len = x.sizes[0];
    const float* const source = cells<float>(x) + row_distance(x, row);
    const W* const weights = cells<W>(w);
    float* const target = cells_to_write<float>(y) + row_distance(y, row);
    float sum = 0.0f;
    for (Index i = threadIdx.x; i < len; i += blockDim.x) {
        const float element = source[i * x.steps[0]];
        sum = fmaf(element, element, sum);
    }
    const float scale = 1.0f / sqrtf(block_sum(sum, shared) / (float)len + epsilon);
    for (Index i = threadIdx.x; i < len; i += blockDim.x) {
        target[i] = source[i * x.steps[0]] * scale * to_float(weights[i * w.steps[0]]);
    }
}

KERNEL(rms_norm_f32, View x, View w, View y, float epsilon) { rms_norm<float>(x, w, y, epsilon); }
KERNEL(rms_norm_f16, View x, View w, View y, float epsilon) { rms_norm<half>(x, w, y, epsilon); }
KERNEL(rms_norm_bf16, View x, View w, View y, float epsilon) { rms_norm<Bf16>(x, w, y, epsilon); }

// `take` is given what is written to y: four elements, and their number.
template <class W, class Take>
DEVICE void rms_norm_wide(const View& x, const View& w, const View& y, float epsilon, Take take) {
    wait_for_turn();
    DYNAMIC_SHARED(float, shared);
    const Index number = blockIdx.x, len = x.sizes[0];
    const W* const weights = cells<W>(w);
    float* const target = cells_to_write<float>(y) + row_distance(y, number);
    const HeldRow row = held_row(cells<float>(x) + row_distance(x, number), len);
    float sum = 0.0f;
    for_each_four(row, [&](const float4& x, Index) { sum = add_squares(x, sum); });
    const float scale = 1.0f / sqrtf(block_sum(sum, shared) / (float)len + epsilon);
    for_each_four(row, [&](const float4& x, Index four) {
        const float4 weight = load_four(weights, four);
        const float4 result = make_float4(x.x * scale * weight.x, x.y * scale * weight.y, x.z * scale * weight.z, x.w * scale * weight.w);
        store_four(target, four, result);
        take(result, number * (len / 4) + four);
    });
}

#define RMS_NORM_WIDE(type, W)                                                                                      \
    KERNEL(rms_norm_wide_##type, View x, View w, View y, float epsilon) {                                           \
        rms_norm_wide<W>(x, w, y, epsilon, [](const float4&, Index) {});                                            \
    }                                                                                                               \
    KERNEL(rms_norm_codes_##type, View x, View w, View y, float epsilon, unsigned char* planes) {                   \
        const Activations blocks{planes, elements(y) / ACTIVATIONS};                                                \
        rms_norm_wide<W>(x, w, y, epsilon, [=](const float4& y, Index four) { store_four_activations(blocks, four, y); }); \
    }

RMS_NORM_WIDE(f32, float)
RMS_NORM_WIDE(f16, half)
RMS_NORM_WIDE(bf16, Bf16)
