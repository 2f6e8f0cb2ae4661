// Normalisation without weights, of runs of elements: a block of threads for each run.
//
//   norm, group_norm  y = (x - m) / sqrt(v + epsilon)             m = mean x, v = mean (x - m)^2
//   l2_norm           y = x / max(sqrt(sum x^2), epsilon)
//
//   x  f32, any strides          y  f32, the same sizes, without gaps
//
// A run is `len` elements in the order in which y lies: an innermost row, or a group of channels with all their width
// and height. Sums are f32: element k goes to thread k mod 256, then the threads of a warp are added in pairs, and then
// the warps. Kernels called wide have runs that begin at multiples of 16 bytes and lie behind each other: fours.cuh.
#include "elements.cuh"
#include "fours.cuh"
#include "ptx.cuh"

// The elements of x from `first` on.
struct Run {
    const View& x;
    Index first;
    Index len;
};

DEVICE float element(const Run& run, Index k) {
    return cells<float>(run.x)[distance_of(run.x, run.first + k)];
}

DEVICE Run run_of_block(const View& x, Index len) {
    return {x, (Index)blockIdx.x * len, len};
}

// All terms of a run added, each thread's one after the other by `add(sum, x)`; the same in every thread.
template <class Add>
DEVICE float sum_of(const Run& run, float* shared, Add add) {
    float sum = 0.0f;
    for (Index k = threadIdx.x; k < run.len; k += blockDim.x) sum = add(sum, element(run, k));
    return block_sum(sum, shared);
}

DEVICE void write_divided(const Run& run, const View& y, float shift, float divisor) {
    float* const target = cells_to_write<float>(y) + run.first;
    for (Index k = threadIdx.x; k < run.len; k += blockDim.x) target[k] = (element(run, k) - shift) / divisor;
}

KERNEL(norm_f32, View x, View y, Index len, float epsilon) {
    wait_for_turn();
    DYNAMIC_SHARED(float, shared);
    const Run run = run_of_block(x, len);
    const float mean = sum_of(run, shared, [](float sum, float x) { return sum + x; }) / (float)len;
    const float squares = sum_of(run, shared, [=](float sum, float x) { return fmaf(x - mean, x - mean, sum); });
    write_divided(run, y, mean, sqrtf(squares / (float)len + epsilon));
}

KERNEL(l2_norm_f32, View x, View y, Index len, float epsilon) {
    wait_for_turn();
    DYNAMIC_SHARED(float, shared);
    const Run run = run_of_block(x, len);
    const float squares = sum_of(run, shared, [](float sum, float x) { return fmaf(x, x, sum); });
    write_divided(run, y, 0.0f, fmaxf(sqrtf(squares), epsilon));
}

DEVICE HeldRow held_run(const View& x, Index len) {
    return held_row(cells<float>(x) + (Index)blockIdx.x * len, len);
}

DEVICE void write_divided_fours(const HeldRow& run, const View& y, Index len, float shift, float divisor) {
    float* const target = cells_to_write<float>(y) + (Index)blockIdx.x * len;
    for_each_four(run, [=](const float4& x, Index four) {
        store_four(target, four, make_float4((x.x - shift) / divisor, (x.y - shift) / divisor, (x.z - shift) / divisor, (x.w - shift) / divisor));
    });
}

KERNEL(norm_wide_f32, View x, View y, Index len, float epsilon) {
    wait_for_turn();
    DYNAMIC_SHARED(float, shared);
    const HeldRow run = held_run(x, len);
    float sum = 0.0f, squares = 0.0f;
    for_each_four(run, [&](const float4& x, Index) { sum = sum + x.x + x.y + x.z + x.w; });
    const float mean = block_sum(sum, shared) / (float)len;
    for_each_four(run, [&](const float4& x, Index) {
        squares = add_squares(make_float4(x.x - mean, x.y - mean, x.z - mean, x.w - mean), squares);
    });
    write_divided_fours(run, y, len, mean, sqrtf(block_sum(squares, shared) / (float)len + epsilon));
}

KERNEL(l2_norm_wide_f32, View x, View y, Index len, float epsilon) {
    wait_for_turn();
    DYNAMIC_SHARED(float, shared);
    const HeldRow run = held_run(x, len);
    float squares = 0.0f;
    for_each_four(run, [&](const float4& x, Index) { squares = add_squares(x, squares); });
    write_divided_fours(run, y, len, 0.0f, fmaxf(sqrtf(block_sum(squares, shared)), epsilon));
}
