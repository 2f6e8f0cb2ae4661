// What comes behind the products for queries, keys and values, head by head: a bias is added, the head is normed,
// rotated, and stored into the cache, each where the model does that. A warp takes one head of one token and writes
// each tensor with the bits of arithmetic.cu, rms_norm.cu (its wide kernels), rope.cu and kv_store.cu.
//
//   x ─▶ sum = x + bias ─▶ normed ─▶ rotated ─▶ cache[:, rows[t]]      all f32 [rows, tokens] without gaps, but for the
//                                                                      cache
#pragma once

#include "codec.cuh"
#include "fours.cuh"
#include "rotation.cuh"
#include "tail.cuh"

// The longest head, in elements: what two lanes' fours of a warp hold, so that squares are summed as rms_norm.cu sums
// them.
constexpr int HEAD_MAX = 2 * 4 * WARP;

// The heads of queries, of keys or of values. What there is not is 0. The host passes the same layout (`Heads` of the
// device's arguments).
struct Heads {
    // What the product wrote.
    const float* x;
    const float* bias;
    float* sum;
    // Of the norm, of type w_type: 0 for f32, 1 for f16, 2 for bf16.
    const unsigned char* w;
    float* normed;
    float* rotated;
    // Of type cache_type: 0 for f32, 1 for f16, 2 for q8_0.
    unsigned char* cache;
    // Of all heads together; 0 where there are no such heads.
    int rows;
    int w_type;
    int cache_type;
    float epsilon;
};

// What is the same for all heads (`HeadsBehind` of the device's arguments).
struct HeadsBehind {
    Rotation rotation;
    int head_size;
    int tokens;
    // As w_type; -1 where there are no factors.
    int factors_type;
    const unsigned char* factors;
    // Of each token: its position, and its place in the caches.
    const int* positions;
    const int* rows;
    // How many a cache has.
    Index places;
    Fault* fault;
};

// Functions that are called read them where the launch put them.
#define HEADS_ARGUMENTS \
    const __grid_constant__ Heads q, const __grid_constant__ Heads k, const __grid_constant__ Heads v, const __grid_constant__ HeadsBehind behind

// Element i of weights of a type: 0 for f32, 1 for f16, 2 for bf16.
DEVICE float weight_at(const unsigned char* weights, int type, Index i) {
    if (type == 1) return to_float(reinterpret_cast<const half*>(weights)[i]);
    return type == 2 ? to_float(reinterpret_cast<const Bf16*>(weights)[i]) : reinterpret_cast<const float*>(weights)[i];
}

// The functions below are for a warp; `held` is what it has of the head, in shared memory, and `first` where the head
// begins in each tensor.

DEVICE void norm_head(const Heads& heads, int size, Index first, float* held) {
    const int lane = threadIdx.x % WARP, fours = size / 4;
    float low = 0.0f, high = 0.0f;
    if (lane < fours) low = add_squares(load_four(held, lane), low);
    if (lane + WARP < fours) high = add_squares(load_four(held, lane + WARP), high);
    const float scale = 1.0f / sqrtf((warp_sum(low) + warp_sum(high)) / (float)size + heads.epsilon);
    __syncwarp();
    for (int i = lane; i < size; i += WARP) {
        held[i] = held[i] * scale * weight_at(heads.w, heads.w_type, i);
        heads.normed[first + i] = held[i];
    }
    __syncwarp();
}

DEVICE void rotate_head(const HeadsBehind& behind, int token, float* rotated, float* held) {
    const Rotation& rotation = behind.rotation;
    const int lane = threadIdx.x % WARP;
    for (int pair = lane; pair < rotation.dimensions / 2; pair += WARP) {
        const float divisor = behind.factors_type < 0 ? 1.0f : weight_at(behind.factors, behind.factors_type, pair);
        const Turn turn = turn_of(rotation, pair, behind.positions[token], divisor);
        const int one = first_of_pair(rotation, pair), other = one + between_pair(rotation);
        const Pair y = turned(turn, held[one], held[other]);
        rotated[one] = held[one] = y.first;
        rotated[other] = held[other] = y.second;
    }
    for (int i = rotation.dimensions + lane; i < behind.head_size; i += WARP) rotated[i] = held[i];
    __syncwarp();
}

// Of several tokens of one place in the cache the last stays.
DEVICE void store_head(const Heads& heads, const HeadsBehind& behind, int token, int begin, const float* held) {
    const Index place = behind.rows[token];
    bool is_stored = lies_within(place, behind.places, behind.fault);
    for (int later = token + 1; later < behind.tokens; later++) is_stored = is_stored && behind.rows[later] != place;
    if (!is_stored) return;
    const Index first = place * heads.rows + begin;
    for (int i = threadIdx.x % WARP; i < behind.head_size; i += WARP) {
        if (heads.cache_type == 0) store(held[i], reinterpret_cast<float*>(heads.cache), first + i);
        if (heads.cache_type == 1) store(held[i], reinterpret_cast<half*>(heads.cache), first + i);
        if (heads.cache_type == 2) store(held[i], reinterpret_cast<BlockQ8_0*>(heads.cache), first + i);
    }
}

// Blocks of threads have up to so many warps.
constexpr int HEAD_WARPS = 4;

// Head number `number` of those of queries, then keys, then values, of one token. It is called, so that products keep
// their registers.
static __device__ __noinline__ void finish_head(const Heads* q, const Heads* k, const Heads* v, const HeadsBehind* behind, unsigned number, int token) {
    __shared__ float4 room[HEAD_WARPS][HEAD_MAX / 4];
    float* const held = reinterpret_cast<float*>(room[threadIdx.x / WARP]);
    const int size = behind->head_size, of_q = q->rows, of_k = of_q + k->rows, row = (int)number * size;
    const Heads& heads = *(row < of_q ? q : row < of_k ? k : v);
    const int begin = row - (row < of_q ? 0 : row < of_k ? of_q : of_k);
    const Index first = (Index)token * heads.rows + begin;
    for (int i = threadIdx.x % WARP; i < size; i += WARP) {
        float x = load_written(heads.x + first + i);
        if (heads.bias != nullptr) {
            x += heads.bias[begin + i];
            heads.sum[first + i] = x;
        }
        held[i] = x;
    }
    __syncwarp();
    if (heads.normed != nullptr) norm_head(heads, size, first, held);
    if (heads.rotated != nullptr) rotate_head(*behind, token, heads.rotated + first, held);
    if (heads.cache != nullptr) store_head(heads, *behind, token, begin, held);
    // What is read here may be written over for the next one.
    __syncwarp();
}

// All tokens of each head of which this warp wrote the last rows: those that the launch's products wrote into q, k and
// v, TILE rows at a time, from `first` on and every `step`, counted through all three.
template <unsigned TILE>
DEVICE void finish_heads(const Heads& q, const Heads& k, const Heads& v, const HeadsBehind& behind, unsigned first, unsigned step, unsigned* counters) {
    if (counters == nullptr) return;
    finish_parts<TILE>(first, step, q.rows + k.rows + v.rows, behind.head_size, counters, [&](unsigned number) {
        for (int token = 0; token < behind.tokens; token++) finish_head(&q, &k, &v, &behind, number, token);
    });
}
