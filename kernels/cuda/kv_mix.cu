// y[d + head size * h, t] = sum_j V[d, h / (heads / kv heads), j] p[j, t, h] over the cached values of the sequence of
// token t: p f32 [capacity, tokens, heads], values [head size * kv heads, context, sequences] f32, f16 or q8_0,
// sequences i32 [tokens], y f32 [head size * heads, tokens].
//
// A thread for each element, positions one after the other; what weighs 0 is not read.
#include "blocks.cuh"

template <class V>
DEVICE void mix(const View& p, const View& values, Index kv_heads, const View& sequences, const View& y, Fault* fault) {
    const Index number = thread_number();
    if (number >= elements(y)) return;
    const Index size = values.sizes[0] / kv_heads, column = number % y.sizes[0], token = number / y.sizes[0], head = column / size;
    const Index sequence = integer_at(sequences, token);
    if (!lies_within(sequence, values.sizes[2], fault)) return;
    const Index element = head / (p.sizes[2] / kv_heads) * size + column % size;
    const Row<Number<float>> weights = row_at<Number<float>>(p, token * p.steps[1] + head * p.steps[2]);
    const Row<V> first = row_at<V>(values, sequence * values.steps[2]);
    float sum = 0.0f;
    for (Index j = 0; j < p.sizes[0]; j++) {
        const float weight = weights[j];
        if (weight != 0.0f) sum = fmaf(first.behind(j * values.steps[1])[element], weight, sum);
    }
    cells_to_write<float>(y)[column * y.steps[0] + token * y.steps[1]] = sum;
}

#define KV_MIX(type, V)                                                                                          \
    KERNEL(kv_mix_##type, View p, View values, Index kv_heads, View sequences, View y, Fault* fault) {            \
        mix<V>(p, values, kv_heads, sequences, y, fault);                                                        \
    }

KV_MIX(f32, Number<float>)
KV_MIX(f16, Number<half>)
KV_MIX(q8_0, Q8_0)
