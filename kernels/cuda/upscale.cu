// Each element repeated along every dimension: y[i, j, c, b] = x[i / f0, j / f1, c / f2, b / f3], quotients rounded
// down.
//
//   x  f32, any strides          y  f32, the sizes of x times f, without gaps          a thread for each element
#include "elements.cuh"

KERNEL(upscale_f32, View x, View y, Index f0, Index f1, Index f2, Index f3) {
    const Index element = thread_number();
    if (element >= elements(y)) return;
    const Place place = place_of(y, element);
    const Place source = {{place.i[0] / f0, place.i[1] / f1, place.i[2] / f2, place.i[3] / f3}};
    cells_to_write<float>(y)[element] = cells<float>(x)[distance(x, source)];
}
