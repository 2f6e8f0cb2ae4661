// y[i] = x[i] / sqrt(mean(x^2) + epsilon) w[i], for each innermost row; x [n, ...], w [n] of f32, f16 or bf16, y as x. A block for each row.
//
// Squares are summed by 256 threads, element k by thread k mod 256, and then over the block.
#include "device.cuh"

template <class W>
DEVICE void rms_norm(const View& x, const View& w, const View& y, float epsilon) {
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
