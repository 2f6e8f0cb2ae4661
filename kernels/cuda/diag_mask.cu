// One side of a diagonal overwritten, in each matrix of the two innermost dimensions: y[j, i] = value where j is beyond
// past + i, else x[j, i].
//
//   x  f32 [positions, tokens, ...], any strides          y  f32, the same sizes, without gaps          a thread for
//      each element
#include "elements.cuh"

// `upper` is 1 for j > past + i, else 0 for j < past + i.
KERNEL(diag_mask_f32, View x, View y, Index past, int upper, float value) {
    const Index element = thread_number();
    if (element >= elements(y)) return;
    const Place place = place_of(y, element);
    const Index diagonal = past + place.i[1];
    const bool overwritten = upper ? place.i[0] > diagonal : place.i[0] < diagonal;
    cells_to_write<float>(y)[element] = overwritten ? value : cells<float>(x)[distance(x, place)];
}
