// One number for all that a window sees at each of its places: the largest, or the sum divided by the window's area,
// padding and all.
//
//   x  f32 [width, height, channels, batch], any strides
//   y  f32 [places across, places down, channels, batch], without gaps          a thread for each element
//
// Sums are f32, row by row.
#include "elements.cuh"

struct Window {
    Index size[2];
    Index stride[2];
    Index padding[2];
};

// All elements that the window sees at the place of an element of y, one after the other by `add(result, x)`.
template <class Add>
DEVICE float pool(const View& x, const Place& place, const Window& window, float result, Add add) {
    Index first[2], end[2];
    for (int axis = 0; axis < 2; axis++) {
        const Index start = place.i[axis] * window.stride[axis] - window.padding[axis];
        first[axis] = start > 0 ? start : 0;
        end[axis] = start + window.size[axis] < x.sizes[axis] ? start + window.size[axis] : x.sizes[axis];
    }
    for (Index row = first[1]; row < end[1]; row++) {
        for (Index column = first[0]; column < end[0]; column++) {
            const Place source = {{column, row, place.i[2], place.i[3]}};
            result = add(result, cells<float>(x)[distance(x, source)]);
        }
    }
    return result;
}

KERNEL(pool_2d_max_f32, View x, View y, Index kw, Index kh, Index stride0, Index stride1, Index padding0, Index padding1) {
    const Index element = thread_number();
    if (element >= elements(y)) return;
    const Window window = {{kw, kh}, {stride0, stride1}, {padding0, padding1}};
    // NaN is the largest.
    cells_to_write<float>(y)[element] = pool(x, place_of(y, element), window, -INFINITY, [](float largest, float x) {
        return largest < x || x != x ? x : largest;
    });
}

KERNEL(pool_2d_average_f32, View x, View y, Index kw, Index kh, Index stride0, Index stride1, Index padding0, Index padding1) {
    const Index element = thread_number();
    if (element >= elements(y)) return;
    const Window window = {{kw, kh}, {stride0, stride1}, {padding0, padding1}};
    const float sum = pool(x, place_of(y, element), window, 0.0f, [](float sum, float x) { return sum + x; });
    cells_to_write<float>(y)[element] = sum / (float)(kw * kh);
}
