// y[d + E h, t] = sum_j V[d, g, j] softmax(scale K[:, g, j] . q[:, h, t] + slope mask[j, t])_j, g = h / (heads / kv
// heads), over the cache of the sequence of token t: q f32 [D, heads, tokens], keys [D * kv heads, context, sequences]
// and values [E * kv heads, context, sequences] f32, f16 or q8_0, sequences i32 [tokens], mask f32 or f16 [capacity,
// tokens, ...], y f32 [E * heads, tokens].
//
// A block of 128 threads for each head of a token: attention.cuh.
#include "attention.cuh"

template <class K, class V>
DEVICE void attend_cache(const View& q, const View& keys, const View& values, const View& sequences, const View& mask, int mask_type,
                         const View& y, float scale, float max_bias, Fault* fault) {
    DYNAMIC_SHARED(float, shared);
    const Index heads = q.sizes[1], number = blockIdx.x % heads, token = blockIdx.x / heads;
    const Index sequence = integer_at(sequences, token);
    if (!lies_within(sequence, keys.sizes[2], fault)) return;
    const Index size = q.sizes[0], kv_heads = keys.sizes[0] / size, width = values.sizes[0] / kv_heads;
    const Index kv_head = number / (heads / kv_heads);
    const Head<Number<float>, K, V> head{
        row_at<Number<float>>(q, number * q.steps[1] + token * q.steps[2]),
        row_at<K>(keys, kv_head * size * keys.steps[0] + sequence * keys.steps[2]),
        row_at<V>(values, kv_head * width * values.steps[0] + sequence * values.steps[2]),
        keys.steps[1], values.steps[1], size, width, mask.sizes[0],
        mask_row(mask, mask_type, token, number, 0, slope_of(max_bias, number, heads)), scale, 0.0f};
    attend(head, shared, cells_to_write<float>(y) + number * width * y.steps[0] + token * y.steps[1], y.steps[0]);
}

#define KV_ATTENTION(key, K, value, V)                                                                                     \
    KERNEL(kv_attention_##key##_##value, View q, View keys, View values, View sequences, View mask, int mask_type, View y, \
           float scale, float max_bias, Fault* fault) {                                                                    \
        attend_cache<K, V>(q, keys, values, sequences, mask, mask_type, y, scale, max_bias, fault);                        \
    }

KV_ATTENTION(f32, Number<float>, f32, Number<float>)
KV_ATTENTION(f32, Number<float>, f16, Number<half>)
KV_ATTENTION(f32, Number<float>, q8_0, Q8_0)
KV_ATTENTION(f16, Number<half>, f32, Number<float>)
KV_ATTENTION(f16, Number<half>, f16, Number<half>)
KV_ATTENTION(f16, Number<half>, q8_0, Q8_0)
KV_ATTENTION(q8_0, Q8_0, f32, Number<float>)
KV_ATTENTION(q8_0, Q8_0, f16, Number<half>)
KV_ATTENTION(q8_0, Q8_0, q8_0, Q8_0)
