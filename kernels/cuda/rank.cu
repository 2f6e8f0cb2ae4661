// Where in each innermost row the elements of some rank lie. A number and its place are ordered as one integer, a pair:
//
//   [ key of the number, 32 bits | place, 32 bits ]      so that equal numbers stay in the order in which they lie
//
//   argmax          the place of the largest              a block of threads for each row
//   argsort, top_k  rank_pairs, then rank_merge on runs of 1, 2, 4, ... pairs until a run is a row, then rank_places: a
//                   thread for each pair
//
//   x  f32 [n, ...], any strides          y  i32, without gaps
//
// NaN is larger than all numbers, zeros of either sign are equal.
#include "elements.cuh"

typedef unsigned long long Pair;

// An integer that orders as the number does.
DEVICE unsigned key(float x) {
    const unsigned bits = x != x ? 0x7fc00000u : (unsigned)__float_as_int(x + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// A pair that is the smaller the larger the number is, or the smaller.
DEVICE Pair pair_of(float x, Index place, bool descending) {
    return (Pair)(descending ? ~key(x) : key(x)) << 32 | (Pair)place;
}

DEVICE Pair smaller(Pair a, Pair b) {
    return a < b ? a : b;
}

KERNEL(argmax_f32, View x, View y) {
    DYNAMIC_SHARED(Pair, shared);
    const float* const row = cells<float>(x) + row_distance(x, blockIdx.x);
    Pair best = ~(Pair)0;
    for (Index i = threadIdx.x; i < x.sizes[0]; i += blockDim.x) best = smaller(best, pair_of(row[i * x.steps[0]], i, true));
    for (int distance = WARP / 2; distance > 0; distance /= 2) best = smaller(best, __shfl_xor_sync(ALL_LANES, best, distance));
    if (threadIdx.x % WARP == 0) shared[threadIdx.x / WARP] = best;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int warp = 1; warp < (int)(blockDim.x / WARP); warp++) best = smaller(best, shared[warp]);
    cells_to_write<int>(y)[blockIdx.x] = (int)(unsigned)best;
}

KERNEL(rank_pairs_f32, View x, Pair* pairs, int descending) {
    const Index element = thread_number();
    if (element >= elements(x)) return;
    pairs[element] = pair_of(cells<float>(x)[distance_of(x, element)], element % x.sizes[0], descending != 0);
}

// Neighbouring sorted runs of each row become one: no two pairs are equal, so the place of one is how many are before
// it in its own run and how many in the other are smaller.
KERNEL(rank_merge, const Pair* pairs, Pair* merged, Index len, Index rows, Index run) {
    const Index element = thread_number();
    if (element >= len * rows) return;
    const Index row = element / len * len, place = element - row, own = place / run * run;
    const bool is_left = own / run % 2 == 0;
    const Index other = is_left ? own + run : own - run;
    const Pair pair = pairs[element];
    Index low = other < len ? other : len, high = other + run < len ? other + run : len;
    const Index first = low;
    while (low < high) {
        const Index middle = low + (high - low) / 2;
        if (pairs[row + middle] < pair) low = middle + 1;
        else high = middle;
    }
    merged[row + (is_left ? own : other) + (place - own) + (low - first)] = pair;
}

// The places of the first `wanted` pairs of each row.
KERNEL(rank_places, const Pair* pairs, View y, Index len, Index wanted) {
    const Index element = thread_number();
    if (element >= elements(y)) return;
    cells_to_write<int>(y)[element] = (int)(unsigned)pairs[element / wanted * len + element % wanted];
}
