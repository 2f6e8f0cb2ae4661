// Which matrix of a stack belongs to a batch.
#pragma once

#include "device.cuh"

// How many elements behind the first of w the matrix of batch i2, i3 begins: the same for n2 / b2 by n3 / b3
// neighbouring batches.
DEVICE Index matrix_distance(const View& w, const View& y, unsigned i2, unsigned i3) {
    if (y.sizes[2] == 1 && y.sizes[3] == 1) return 0;
    const unsigned shared2 = (unsigned)y.sizes[2] / (unsigned)w.sizes[2], shared3 = (unsigned)y.sizes[3] / (unsigned)w.sizes[3];
    return i2 / shared2 * w.steps[2] + i3 / shared3 * w.steps[3];
}
