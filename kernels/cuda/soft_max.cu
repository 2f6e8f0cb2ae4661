// y[j] = exp(s_j - max s) / sum_k exp(s_k - max s), s_j = scale x[j] + slope mask[j], for each innermost row: x and y f32 [capacity, tokens, heads,
// batch], mask f32 or f16 [capacity, tokens, ...]. Exactly 0 where the mask is -infinity; a row without any other is all 0.
//
// A block for each row: element j to thread j mod 256, which keeps exponentials in y between.
#include "masks.cuh"

KERNEL(soft_max_f32, View x, View mask, int mask_type, View y, float scale, float max_bias) {
    DYNAMIC_SHARED(float, shared);
    const Index row = blockIdx.x, len = x.sizes[0];
    const Index token = row % x.sizes[1], head = row / x.sizes[1] % x.sizes[2], batch = row / x.sizes[1] / x.sizes[2];
    const float* const from = cells<float>(x) + row_distance(x, row);
    float* const to = cells_to_write<float>(y) + row_distance(y, row);
    const MaskRow biases = mask_row(mask, mask_type, token, head, batch, slope_of(max_bias, head, x.sizes[2]));
    float largest = -INFINITY;
    for (Index j = threadIdx.x; j < len; j += blockDim.x) {
        const float bias = biases[j];
        const float score = bias == -INFINITY ? bias : scale * from[j * x.steps[0]] + bias;
        to[j * y.steps[0]] = score;
        largest = fmaxf(largest, score);
    }
    largest = block_max(largest, shared);
    float sum = 0.0f;
    for (Index j = threadIdx.x; j < len; j += blockDim.x) {
        const float score = to[j * y.steps[0]];
        const float exponential = score == -INFINITY ? 0.0f : expf(score - largest);
        to[j * y.steps[0]] = exponential;
        sum += exponential;
    }
    sum = block_sum(sum, shared);
    for (Index j = threadIdx.x; j < len; j += blockDim.x) {
        const float exponential = to[j * y.steps[0]];
        to[j * y.steps[0]] = exponential == 0.0f ? 0.0f : exponential / sum;
    }
}
