// The tail of a launch: who finds that all of a part is written, a warp or a block of threads, does at once what a
// launch behind it would have done.
//
//   each     writes its share ─▶ fence ─▶ counts itself
//   the last one                                        ─▶ fence ─▶ reads what the others wrote ─▶ norm, codes, joining
//
// Counters lie in a room of the device that is zero before a launch: the last one to count finds that it is, and leaves
// 0 for the next launch. What others wrote in this launch is read by `load_written`, past the caches that are not
// shared.
#pragma once

#include "activation_blocks.cuh"
#include "fours.cuh"

template <class T>
DEVICE T load_written(const T* place) {
    return __ldcg(place);
}

DEVICE float4 load_written_four(const float* row, Index four) {
    return load_written(reinterpret_cast<const float4*>(row) + four);
}

// Whether this block of threads is the last of `count` that come here, the same in each thread: then what all of them
// wrote before can be read.
DEVICE bool is_last_block(unsigned* counter, unsigned count) {
    __syncthreads();
    bool last = false;
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicInc(counter, count - 1) == count - 1;
        // Between the count and the barrier: what this thread may read, all may behind the barrier.
        if (last) __threadfence();
    }
    return __syncthreads_or(last) != 0;
}

// A warp has written TILE rows from `first` on, from first + step on, and so on, of `rows`. Calls finish(number) for
// each part of `part` rows, a multiple of TILE, of which it is the last warp to have written some; each part has a
// counter. All lanes take part.
template <unsigned TILE, class Finish>
DEVICE void finish_parts(unsigned first, unsigned step, unsigned rows, unsigned part, unsigned* counters, Finish finish) {
    const unsigned count = part / TILE;
    __syncwarp();
    for (unsigned begin = first; begin < rows; begin += step * WARP) {
        const unsigned row = begin + threadIdx.x % WARP * step;
        bool last = false;
        if (row < rows) {
            __threadfence();
            last = atomicInc(counters + row / part, count - 1) == count - 1;
            __threadfence();
        }
        for (unsigned parts = __ballot_sync(ALL_LANES, last); parts != 0; parts &= parts - 1) {
            // What the lane that counted may read, all may from here on.
            __syncwarp();
            finish((begin + (__ffs((int)parts) - 1) * step) / part);
        }
    }
}

// The norm behind a sum, and its codes, where there is one.
struct NormTail {
    // Weights, and their type: 0 for f32, 1 for f16, 2 for bf16.
    const View& w;
    int w_type;
    const View& y;
    float epsilon;
    // Where the codes of y go; 0 for nowhere.
    unsigned char* codes;
    // 0 where there is no norm.
    unsigned* counter;
};

DEVICE float4 load_weights(const NormTail& norm, Index four) {
    if (norm.w_type == 1) return load_four(cells<half>(norm.w), four);
    return norm.w_type == 2 ? load_four(cells<Bf16>(norm.w), four) : load_four(cells<float>(norm.w), four);
}

// One row, x, of what this launch wrote, as rms_norm_wide has it, by a block of half as many threads: each has the
// share of two.
DEVICE void norm_row(const NormTail& norm, const float* x, Index row, float* shared) {
    const Index fours = norm.y.sizes[0] / 4;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, half_threads = FOURS_THREADS / 2, half_warps = half_threads / WARP;
    float low = 0.0f, high = 0.0f;
#pragma unroll 4
    for (Index four = threadIdx.x; four < fours; four += FOURS_THREADS) {
        low = add_squares(load_written_four(x, four), low);
        if (four + half_threads < fours) high = add_squares(load_written_four(x, four + half_threads), high);
    }
    low = warp_sum(low), high = warp_sum(high);
    if (lane == 0) shared[warp] = low, shared[half_warps + warp] = high;
    __syncthreads();
    const float sum = warp_sum(lane < 2 * half_warps ? shared[lane] : 0.0f);
    const float scale = 1.0f / sqrtf(sum / (float)norm.y.sizes[0] + norm.epsilon);
    float* const target = cells_to_write<float>(norm.y) + row * norm.y.steps[1];
    const Activations codes{norm.codes, elements(norm.y) / ACTIVATIONS};
#pragma unroll 4
    for (Index four = threadIdx.x; four < fours; four += half_threads) {
        const float4 x_four = load_written_four(x, four), weight = load_weights(norm, four);
        const float4 y = make_float4(x_four.x * scale * weight.x, x_four.y * scale * weight.y, x_four.z * scale * weight.z, x_four.w * scale * weight.w);
        store_four(target, four, y);
        if (norm.codes != nullptr) store_four_activations(codes, row * fours + four, y);
    }
    __syncthreads();
}

// The norm of all rows of s, which the blocks of this grid have written, by the last of them: blocks of 128 threads,
// all of which come here.
DEVICE void finish_norm(const NormTail& norm, const View& s) {
    if (norm.counter == nullptr || !is_last_block(norm.counter, gridDim.x * gridDim.y)) return;
    __shared__ float shared[FOURS_THREADS / WARP];
    for (Index row = 0; row < s.sizes[1]; row++) norm_row(norm, cells<float>(s) + row * s.steps[1], row, shared);
}

// The codes of rows that warps wrote into y [rows, tokens], by the warp that wrote the last of each 32: TILE rows at
// once, of the tile's tokens.
template <unsigned TILE, int TOKENS>
DEVICE void finish_codes(const View& y, unsigned first, unsigned step, unsigned char* planes, unsigned* counters) {
    const unsigned rows = (unsigned)y.sizes[0], tokens = (unsigned)y.sizes[1];
    const Activations codes{planes, elements(y) / ACTIVATIONS};
    finish_parts<TILE>(first, step, rows, ACTIVATIONS, counters, [&](unsigned part) {
        for (unsigned token = 0; token < min((unsigned)TOKENS, tokens); token++) {
            const float value = load_written(cells<float>(y) + (part * ACTIVATIONS + threadIdx.x % WARP + token * y.steps[1]));
            store_activation_of_warp(codes, token * (rows / ACTIVATIONS) + part, value);
        }
    });
}
