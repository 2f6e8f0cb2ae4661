// y[j] = exp(s_j - max s) / sum_k exp(s_k - max s), s_j = scale x[j] + slope mask[j], for each innermost row: x and y
// f32 [capacity, tokens, heads, batch], mask f32 or f16 [capacity, tokens, ...]. Exactly 0 where the mask is -infinity;
// a row without any other is all 0.
//
// A block for each row: element j to thread j mod 256, which keeps exponentials in y between; in the wide kernel j / 4
// mod 256, and exponentials are computed twice: rows of x and y, and those of the mask, begin at multiples of 16 bytes
// and lie without gaps.
#include "fours.cuh"
#include "ptx.cuh"
#include "masks.cuh"

KERNEL(soft_max_f32, View x, View mask, int mask_type, View y, float scale, float max_bias) {
    wait_for_turn();
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

// What the mask has for four elements.
DEVICE float4 load_mask(const MaskRow& biases, Index four) {
    if (biases.type == NO_MASK) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (biases.type == MASK_F32) return load_four(reinterpret_cast<const float*>(biases.first), four);
    return load_four(reinterpret_cast<const half*>(biases.first), four);
}

// scale x + slope mask; -infinity, which no slope changes, hides an element.
DEVICE float score_of(float x, float scale, float mask, float slope) {
    return mask == -INFINITY ? mask : scale * x + slope * mask;
}

KERNEL(soft_max_wide_f32, View x, View mask, int mask_type, View y, float scale, float max_bias) {
    wait_for_turn();
    DYNAMIC_SHARED(float, shared);
    const Index number = blockIdx.x;
    const Index token = number % x.sizes[1], head = number / x.sizes[1] % x.sizes[2], batch = number / x.sizes[1] / x.sizes[2];
    const MaskRow biases = mask_row(mask, mask_type, token, head, batch, slope_of(max_bias, head, x.sizes[2]));
    const HeldRow row = held_row(cells<float>(x) + row_distance(x, number), x.sizes[0]);
    const auto scores = [&](const float4& x, Index four) {
        const float4 masked = load_mask(biases, four);
        return make_float4(score_of(x.x, scale, masked.x, biases.slope), score_of(x.y, scale, masked.y, biases.slope),
                           score_of(x.z, scale, masked.z, biases.slope), score_of(x.w, scale, masked.w, biases.slope));
    };
    float largest = -INFINITY, sum = 0.0f;
    for_each_four(row, [&](const float4& x, Index four) {
        const float4 score = scores(x, four);
        largest = fmaxf(fmaxf(fmaxf(fmaxf(largest, score.x), score.y), score.z), score.w);
    });
    largest = block_max(largest, shared);
    const auto exponential = [=](float score) { return score == -INFINITY ? 0.0f : expf(score - largest); };
    for_each_four(row, [&](const float4& x, Index four) {
        const float4 score = scores(x, four);
        sum = sum + exponential(score.x) + exponential(score.y) + exponential(score.z) + exponential(score.w);
    });
    sum = block_sum(sum, shared);
    const auto share = [=](float score) { return exponential(score) == 0.0f ? 0.0f : exponential(score) / sum; };
    float* const target = cells_to_write<float>(y) + row_distance(y, number);
    for_each_four(row, [&](const float4& x, Index four) {
        const float4 score = scores(x, four);
        store_four(target, four, make_float4(share(score.x), share(score.y), share(score.z), share(score.w)));
    });
}
