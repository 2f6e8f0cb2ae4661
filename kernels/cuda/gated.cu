// The gated activation of the feed-forward: y = f(gate) up, element by element.
//
//   gate, up  f32, any strides          y  f32, the same sizes, without gaps          a thread for each element
#include "activations.cuh"
#include "elements.cuh"
#include "ptx.cuh"

template <class Function>
DEVICE void gate_by(const View& gate, const View& up, const View& y, Function function) {
    wait_for_turn();
    const Index element = thread_number();
    if (element >= elements(y)) return;
    const float opened = function(cells<float>(gate)[distance_of(gate, element)]);
    cells_to_write<float>(y)[element] = opened * cells<float>(up)[distance_of(up, element)];
}

#define GATED(name, function)                       \
    KERNEL(name##_f32, View gate, View up, View y) { \
        gate_by(gate, up, y, [](float x) { return function(x); }); \
    }

GATED(reglu, relu)
GATED(geglu, gelu)
GATED(geglu_erf, gelu_erf)
GATED(geglu_quick, gelu_quick)
GATED(swiglu, silu)
