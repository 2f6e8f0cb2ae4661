// y[j, t, h] = sum_d K[d, h / (heads / kv heads), j] q[d, h, t] over the cached keys of the sequence of token t: q f32
// [head size, heads, tokens], keys [head size * kv heads, context, sequences] f32, f16 or q8_0, sequences i32 [tokens],
// y f32 [capacity, tokens, heads].
//
// Eight lanes for each score, element d to lane d mod 8; a warp has four positions.
#include "attention.cuh"

template <class K>
DEVICE void score(const View& q, const View& keys, const View& sequences, const View& y, Fault* fault) {
    const Index number = thread_number() / KEY_LANES, size = q.sizes[0];
    const Index position = number % y.sizes[0], token = number / y.sizes[0] % y.sizes[1], head = number / y.sizes[0] / y.sizes[1];
    Index sequence = 0;
    bool exists = head < y.sizes[2];
    if (exists) {
        sequence = integer_at(sequences, token);
        exists = lies_within(sequence, keys.sizes[2], fault);
    }
    float sum = 0.0f;
    if (exists) {
        const Index kv_head = head / (q.sizes[1] / (keys.sizes[0] / size));
        const Row<K> key = row_at<K>(keys, kv_head * size * keys.steps[0] + position * keys.steps[1] + sequence * keys.steps[2]);
        const Row<Number<float>> query = row_at<Number<float>>(q, head * q.steps[1] + token * q.steps[2]);
        sum = key_product(key, query, size);
    }
    sum = key_lanes_sum(sum);
    if (exists && threadIdx.x % KEY_LANES == 0) {
        cells_to_write<float>(y)[position * y.steps[0] + token * y.steps[1] + head * y.steps[2]] = sum;
    }
}

#define KV_SCORES(type, K) \
    KERNEL(kv_scores_##type, View q, View keys, View sequences, View y, Fault* fault) { score<K>(q, keys, sequences, y, fault); }

KV_SCORES(f32, Number<float>)
KV_SCORES(f16, Number<half>)
KV_SCORES(q8_0, Q8_0)
