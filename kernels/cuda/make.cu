// Tensors made from parameters, in f64 but for the result; a thread for each element.
//
//   arange              y[i] = start + i step
//   fill                y = value
//   timestep_embedding  y[j, i] = cos(t[i] f[j]), y[j + half, i] = sin(t[i] f[j]),  f[j] = period_max^(-j / half), half
//                       = dimensions / 2;
//                       the last of an odd number of dimensions is 0
//   alibi_slopes        y[h] = 2^(-bias_max (h + 1) / p)          h < p, the largest power of two that is not above
//                       heads
//                       y[h] = 2^(-bias_max (2 (h - p) + 1) / 2 p)  else
//
//   t  f32 [n], any strides          y  f32, without gaps
#include "device.cuh"

KERNEL(arange_f32, View y, float start, float step) {
    const Index element = thread_number();
    if (element >= elements(y)) return;
    cells_to_write<float>(y)[element] = (float)((double)start + (double)element * (double)step);
}

KERNEL(fill_f32, View y, float value) {
    const Index element = thread_number();
    if (element >= elements(y)) return;
    cells_to_write<float>(y)[element] = value;
}

KERNEL(timestep_embedding_f32, View t, View y, float period_max) {
    const Index element = thread_number();
    if (element >= elements(y)) return;
    const Index dimensions = y.sizes[0], half_len = dimensions / 2;
    const Index place = element % dimensions, column = element / dimensions;
    float wave = 0.0f;
    if (place < 2 * half_len) {
        const double frequency = pow((double)period_max, -(double)(place % half_len) / (double)half_len);
        const double angle = (double)cells<float>(t)[column * t.steps[0]] * frequency;
        wave = (float)(place < half_len ? cos(angle) : sin(angle));
    }
    cells_to_write<float>(y)[element] = wave;
}

KERNEL(alibi_slopes_f32, View y, float bias_max) {
    const Index head = thread_number(), heads = elements(y);
    if (head >= heads) return;
    Index whole = 1;
    while (2 * whole <= heads) whole *= 2;
    const double halvings = head < whole ? (double)(head + 1) : (double)(head - whole) + 0.5;
    cells_to_write<float>(y)[head] = (float)exp2(-(double)bias_max * halvings / (double)whole);
}
