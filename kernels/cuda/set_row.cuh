// New rows in a tensor without gaps: y[:, rows[t]] = x[:, t], rounded to its type, rows counted over all dimensions;
// the last of several on one row stays. A block of threads for row number `row` of x. A row outside of the tensor is
// told and not written.
#pragma once

#include "codec.cuh"

// Whether a later row of x goes to the same place; the same in every thread.
DEVICE bool is_superseded(const View& rows, Index row, float* shared) {
    const int* const places = cells<int>(rows);
    bool found = false;
    for (Index later = row + 1 + threadIdx.x; later < rows.sizes[0]; later += blockDim.x) {
        found = found || places[later * rows.steps[0]] == places[row * rows.steps[0]];
    }
    return block_max(found ? 1.0f : 0.0f, shared) > 0.0f;
}

template <class T>
DEVICE void set_row(const View& x, const View& rows, const View& y, Index row, Fault* fault, float* shared) {
    const Index width = x.sizes[0];
    const Index place = cells<int>(rows)[row * rows.steps[0]];
    if (!lies_within(place, y.sizes[1] * y.sizes[2] * y.sizes[3], fault) || is_superseded(rows, row, shared)) return;
    const float* const source = cells<float>(x) + row * x.steps[1];
    for (Index i = threadIdx.x; i < width; i += blockDim.x) {
        store(source[i * x.steps[0]], cells_to_write<T>(y), place * width + i);
    }
}
