// Where the elements of tensors lie, for kernels with a thread for each element of the result.
#pragma once

#include "device.cuh"

// Whether elements lie behind each other.
DEVICE bool is_dense(const View& view) {
    Index step = 1;
    for (int d = 0; d < 4; d++) {
        if (view.steps[d] != step) return false;
        step *= view.sizes[d];
    }
    return true;
}

// How many elements behind the first element number `element` lies.
DEVICE Index distance_of(const View& view, Index element) {
    return is_dense(view) ? element : distance(view, place_of(view, element));
}

// The same of a tensor that is repeated to the sizes of `target`, of which `element` is one.
DEVICE Index repeated_distance(const View& view, const View& target, Index element) {
    if (is_dense(view) && elements(view) == elements(target)) return element;
    return distance(view, repeated(view, place_of(target, element)));
}

// Moves a place toward the first; false where it leaves the tensor.
DEVICE bool shift_into(const View& view, Place& place, const Place& start) {
    bool inside = true;
    for (int d = 0; d < 4; d++) {
        place.i[d] -= start.i[d];
        inside = inside && place.i[d] >= 0 && place.i[d] < view.sizes[d];
    }
    return inside;
}
