// What the fast kernels of attention share, for both operators: how tensors reach them, and which tokens are whose.
//
//   q         f32 [D, tokens, heads, batch], any strides
//   k, v      [D or E, positions, kv heads, batch], the elements of a row without gaps
//   mask      f32 or f16 [positions, tokens, ...] where there is one
//   sequence  i32 [tokens]: the batch of k and v that a token looks at, where it is not the token's own
//   y         f32 [E, tokens, heads, batch]
//
// The host gives views in this order of dimensions, whatever an operator's own is. Tokens that look at the same
// sequence and stand together go through tiles (attention_tiles.cu) where there are many, all others one by one
// (attention_split.cu): both kernels are launched where the host cannot know, and each block asks whether its tile is
// of one sequence.
#pragma once

#include "blocks.cuh"
#include "masks.cuh"

struct Attention {
    const View &q, &k, &v, &mask, &sequences, &y;
    int mask_type, has_sequences;
    float scale, max_bias;

    __device__ __forceinline__ int tokens() const { return (int)q.sizes[1]; }
    __device__ __forceinline__ int heads() const { return (int)q.sizes[2]; }
    // Heads that share one of k and v.
    __device__ __forceinline__ int group() const { return (int)(q.sizes[2] / k.sizes[2]); }
    __device__ __forceinline__ int positions() const { return (int)k.sizes[1]; }
    __device__ __forceinline__ float slope(int head) const { return slope_of(max_bias, head, heads()); }
    __device__ __forceinline__ MaskRow biases(int token, int head, int batch, float slope) const {
        return mask_row(mask, mask_type, token, head, batch, slope);
    }
};

// The sequence that a token looks at; -1, and told, where there is none.
DEVICE Index sequence_of(const Attention& attention, int token, int batch, Fault* fault) {
    if (!attention.has_sequences) return batch;
    const Index sequence = integer_at(attention.sequences, token);
    return lies_within(sequence, attention.k.sizes[3], fault) ? sequence : -1;
}

// Whether all of up to `count` tokens from `first` on look at one sequence; the same in every thread of the block, all
// of which take part.
DEVICE bool is_of_one_sequence(const Attention& attention, int first, int count) {
    bool same = true;
    if (attention.has_sequences) {
        for (int i = threadIdx.x; i < count && first + i < attention.tokens(); i += blockDim.x) {
            same = same && integer_at(attention.sequences, first + i) == integer_at(attention.sequences, first);
        }
    }
    return __syncthreads_and(same) != 0;
}
