// What a window sees at each of its places, as a column:
//
//   y[(c kh + j) kw + i, p, q, b] = x[p stride0 + i dilation0 - padding0, q stride1 + j dilation1 - padding1, c, b],
//   outside the image 0
//
//   x  f32 [width, height, channels, batch], any strides
//   y  f32 [channels kh kw, places across, places down, batch], without gaps          a thread for each element
//
// Lines are images of height 1.
#include "elements.cuh"

KERNEL(im2col_f32, View x, View y, Index kw, Index kh, Index stride0, Index stride1, Index padding0, Index padding1, Index dilation0,
       Index dilation1) {
    const Index element = thread_number();
    if (element >= elements(y)) return;
    const Place place = place_of(y, element);
    const Index i = place.i[0] % kw, j = place.i[0] / kw % kh, channel = place.i[0] / kw / kh;
    const Index column = place.i[1] * stride0 + i * dilation0 - padding0;
    const Index row = place.i[2] * stride1 + j * dilation1 - padding1;
    const bool inside = column >= 0 && column < x.sizes[0] && row >= 0 && row < x.sizes[1];
    const Place source = {{column, row, channel, place.i[3]}};
    cells_to_write<float>(y)[element] = inside ? cells<float>(x)[distance(x, source)] : 0.0f;
}
