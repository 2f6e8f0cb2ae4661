// Attention of one head of one token, by a block of 128 threads: 128 positions at a time, whose scores never leave
// shared memory.
//
//   positions 0 ... 127   scores ─▶ largest m ─▶ p = exp(s - m) ─▶ total = sum p, mixed = sum p v
//   the next 128          scores ─▶ m' >= m   ─▶ total, mixed times exp(m - m'), then as before ─▶ ... ─▶ mixed / total
//
// Scores are summed by eight lanes each, element d to lane d mod 8. What a position holds that is not to be seen is not
// read, and 128 of these together cost nothing but a look at the mask.
#pragma once

#include "blocks.cuh"
#include "masks.cuh"

constexpr int KEY_LANES = 8;

// Positions at once, and threads.
constexpr int SEEN = 128;

// This lane's share of the product of a key with a query.
template <class K, class Q>
DEVICE float key_product(const K& key, const Q& query, Index size) {
    float sum = 0.0f;
    for (Index d = threadIdx.x % KEY_LANES; d < size; d += KEY_LANES) sum = fmaf(key[d], query[d], sum);
    return sum;
}

// Sum over the eight lanes of a score, the same in each.
DEVICE float key_lanes_sum(float x) {
    for (int distance = KEY_LANES / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(ALL_LANES, x, distance);
    return x;
}

// What one head of one token looks at.
template <class Q, class K, class V>
struct Head {
    Row<Q> query;
    Row<K> keys;
    Row<V> values;
    // Distances of neighbouring positions, in elements.
    Index key_step, value_step;
    // Lengths of keys and values, and how many there are.
    Index size, width, positions;
    MaskRow mask;
    float scale;
    // Scores stay between it and its negative; 0 for no limit.
    float softcap;
};

DEVICE float capped(float score, float softcap) {
    return softcap == 0.0f ? score : softcap * tanhf(score / softcap);
}

// Makes scores of the biases in `scores`, for SEEN positions from `first` on.
template <class Q, class K, class V>
DEVICE void add_scores(const Head<Q, K, V>& head, const float* query, float* scores, Index first) {
    for (int place = threadIdx.x / KEY_LANES; place < SEEN; place += SEEN / KEY_LANES) {
        const float bias = scores[place];
        const bool seen = bias != -INFINITY;
        const float share = seen ? key_product(head.keys.behind((first + place) * head.key_step), query, head.size) : 0.0f;
        const float product = key_lanes_sum(share);
        // All eight lanes have read the bias that one of them replaces.
        __syncwarp();
        if (seen && threadIdx.x % KEY_LANES == 0) scores[place] = capped(product * head.scale, head.softcap) + bias;
    }
    __syncthreads();
}

// mixed = mixed * kept + sum_j weights[j] v[j], for SEEN positions from `first` on. A thread for each element.
template <class Q, class K, class V>
DEVICE void add_values(const Head<Q, K, V>& head, const float* weights, float* mixed, float kept, Index first) {
    for (Index d = threadIdx.x; d < head.width; d += SEEN) {
        float sum = 0.0f;
        for (int place = 0; place < SEEN; place++) {
            const float weight = weights[place];
            if (weight != 0.0f) sum = fmaf(weight, head.values.behind((first + place) * head.value_step)[d], sum);
        }
        mixed[d] = fmaf(mixed[d], kept, sum);
    }
    __syncthreads();
}

// The mixture of values goes to `y`, by steps of `step`; all 0 where nothing is to be seen. `shared` holds size +
// width + SEEN + 32 numbers.
template <class Q, class K, class V>
DEVICE void attend(const Head<Q, K, V>& head, float* shared, float* y, Index step) {
    float *const query = shared, *const mixed = query + head.size, *const scores = mixed + head.width, *const sums = scores + SEEN;
    for (Index d = threadIdx.x; d < head.size; d += SEEN) query[d] = head.query[d];
    for (Index d = threadIdx.x; d < head.width; d += SEEN) mixed[d] = 0.0f;
    float total = 0.0f, largest = -INFINITY;
    for (Index first = 0; first < head.positions; first += SEEN) {
        const Index position = first + threadIdx.x;
        const float bias = position < head.positions ? head.mask[position] : -INFINITY;
        scores[threadIdx.x] = bias;
        // What is no number is seen, and told on.
        if (__syncthreads_or(bias != -INFINITY) == 0) continue;
        add_scores(head, query, scores, first);
        const float score = scores[threadIdx.x], next = fmaxf(largest, block_max(score, sums));
        // Scores of -infinity only: their exponentials are 0.
        const float subtracted = next == -INFINITY ? 0.0f : next;
        const float kept = expf(largest - subtracted), weight = expf(score - subtracted);
        scores[threadIdx.x] = weight;
        total = total * kept + block_sum(weight, sums);
        largest = next;
        add_values(head, scores, mixed, kept, first);
    }
    for (Index d = threadIdx.x; d < head.width; d += SEEN) y[d * step] = total == 0.0f ? 0.0f : mixed[d] / total;
}
