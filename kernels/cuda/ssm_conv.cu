// The short convolution along time in front of a state space model, each channel by itself: y[c, t, s] = sum_k x[t + k,
// c, s] w[k, c].
//
//   x  f32 [taps - 1 + tokens, channels, sequences], any strides          w  f32, f16 or bf16 [taps, channels], any
//      strides
//   y  f32 [channels, tokens, sequences], without gaps                    a thread for each element
//
// A kernel's last word is the type of w. Taps are summed in f32, one after the other.
#include "elements.cuh"

template <class W>
DEVICE void convolve(const View& x, const View& w, const View& y) {
    const Index element = thread_number();
    if (element >= elements(y)) return;
    const Place place = place_of(y, element);
    const Index channel = place.i[0], token = place.i[1], sequence = place.i[2];
    const float* const seen = cells<float>(x) + token * x.steps[0] + channel * x.steps[1] + sequence * x.steps[2];
    const W* const taps = cells<W>(w) + channel * w.steps[1];
    float sum = 0.0f;
    for (Index k = 0; k < w.sizes[0]; k++) sum = fmaf(seen[k * x.steps[0]], to_float(taps[k * w.steps[0]]), sum);
    cells_to_write<float>(y)[element] = sum;
}

KERNEL(ssm_conv_f32, View x, View w, View y) { convolve<float>(x, w, y); }

KERNEL(ssm_conv_f16, View x, View w, View y) { convolve<half>(x, w, y); }

KERNEL(ssm_conv_bf16, View x, View w, View y) { convolve<Bf16>(x, w, y); }
