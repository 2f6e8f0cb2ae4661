// Pairs (x_1, x_2) of each head rotated by an angle that grows with the position: x [head size, heads, tokens] f32,
// positions i32 [tokens] or [tokens, 2], factors [dimensions / 2] where there are some, y like x.
//
//   a_i = position base^(-2 i / dimensions) / factors[i] ((1 - r_i) / factor + r_i)
//   r_i = 1 - clamp((i - low) / max(0.001, high - low), 0, 1)
//   y_1 = s (x_1 cos a_i - x_2 sin a_i),  y_2 = s (x_1 sin a_i + x_2 cos a_i)
//
// Angles are computed by rotation.cuh. A thread takes one pair of some heads of a token, or an element that is not
// rotated: of all heads in a kernel for one tensor, of a few in those for queries and keys together, which are for few
// tokens.
#include "ptx.cuh"
#include "rotation.cuh"

// Threads for a head of a token.
DEVICE Index threads_of_head(const View& x, const View& positions, const Rotation& rotation) {
    return x.sizes[0] - rotation.dimensions / 2 * positions.sizes[1];
}

// The share of thread `number`, which has up to `heads_each` heads.
template <class F>
DEVICE void rope(const View& x, const View& positions, const View& factors, int has_factors, const View& y, const Rotation& rotation,
                 Index number, Index heads_each) {
    const int half_size = rotation.dimensions / 2, rows = (int)positions.sizes[1], pairs = half_size * rows;
    const Index together = threads_of_head(x, positions, rotation), chunks = (x.sizes[1] + heads_each - 1) / heads_each;
    const Index place = number % together, chunk = number / together % chunks, column = number / together / chunks;
    const Index token = column % x.sizes[2], batch = column / x.sizes[2], first_head = chunk * heads_each;
    if (batch >= x.sizes[3]) return;
    const float* from = cells<float>(x) + first_head * x.steps[1] + token * x.steps[2] + batch * x.steps[3];
    float* to = cells_to_write<float>(y) + first_head * y.steps[1] + token * y.steps[2] + batch * y.steps[3];
    const Index end = min(first_head + heads_each, x.sizes[1]);
    if (place >= pairs) {
        const Index kept = place + pairs;
        for (Index head = first_head; head < end; head++, from += x.steps[1], to += y.steps[1]) {
            to[kept * y.steps[0]] = from[kept * x.steps[0]];
        }
        return;
    }
    const int row = (int)place / half_size, pair = (int)place % half_size, part = row * rotation.dimensions;
    const Index first = part + first_of_pair(rotation, pair), second = first + between_pair(rotation);
    const float divisor = has_factors ? row_at<F>(factors, 0)[pair] : 1.0f;
    const Turn turn = turn_of(rotation, pair, integer_at(positions, token, row), divisor);
    for (Index head = first_head; head < end; head++, from += x.steps[1], to += y.steps[1]) {
        const Pair y_pair = turned(turn, from[first * x.steps[0]], from[second * x.steps[0]]);
        to[first * y.steps[0]] = y_pair.first;
        to[second * y.steps[0]] = y_pair.second;
    }
}

// Heads of a thread where queries and keys are rotated together: an angle is computed again for each so many.
constexpr Index HEADS_EACH = 4;

// Queries and keys of the same tokens: the threads of the queries, then those of the keys.
template <class F>
DEVICE void rope_pair(const View& q, const View& k, const View& positions, const View& factors, int has_factors, const View& q_y,
                      const View& k_y, const Rotation& rotation) {
    const Index number = thread_number(), chunks = (q.sizes[1] + HEADS_EACH - 1) / HEADS_EACH;
    const Index of_queries = threads_of_head(q, positions, rotation) * chunks * q.sizes[2] * q.sizes[3];
    if (number < of_queries) {
        rope<F>(q, positions, factors, has_factors, q_y, rotation, number, HEADS_EACH);
    } else {
        rope<F>(k, positions, factors, has_factors, k_y, rotation, number - of_queries, HEADS_EACH);
    }
}

// Without factors, any view may stand in their place.
#define ROPE(type, F)                                                                                                              \
    KERNEL(rope_f32_##type, View x, View positions, View factors, int has_factors, View y, int dimensions, int halves, float ratio,   \
           float ratio_rest, float factor, float low, float high, float magnitude) {                                                  \
        wait_for_turn();                                                                                                              \
        const Rotation rotation{dimensions, halves, Twofold{ratio, ratio_rest}, factor, low, high, magnitude};                        \
        rope<F>(x, positions, factors, has_factors, y, rotation, thread_number(), x.sizes[1]);                                        \
    }                                                                                                                                \
    KERNEL(rope_pair_f32_##type, View q, View k, View positions, View factors, int has_factors, View q_y, View k_y,                   \
           int dimensions, int halves, float ratio, float ratio_rest, float factor, float low, float high, float magnitude) {         \
        wait_for_turn();                                                                                                              \
        const Rotation rotation{dimensions, halves, Twofold{ratio, ratio_rest}, factor, low, high, magnitude};                        \
        rope_pair<F>(q, k, positions, factors, has_factors, q_y, k_y, rotation);                                                      \
    }

ROPE(f32, Number<float>)
ROPE(f16, Number<half>)
ROPE(bf16, Number<Bf16>)
