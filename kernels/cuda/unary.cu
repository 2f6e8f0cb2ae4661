// Functions of each element: y = f(x).
//
//   x  f32, any strides          y  f32, the same sizes, without gaps          a thread for each element
//
// The functions of f32 have the errors that CUDA's programming guide names; pow is computed in f64 and rounded once.
#include "activations.cuh"
#include "elements.cuh"
#include "ptx.cuh"

template <class Function>
DEVICE void map(const View& x, const View& y, Function function) {
    wait_for_turn();
    const Index element = thread_number();
    if (element >= elements(y)) return;
    cells_to_write<float>(y)[element] = function(cells<float>(x)[distance_of(x, element)]);
}

// (x + 3) / 6 between 0 and 1; NaN stays.
DEVICE float hardsigmoid(float x) {
    const float shifted = x + 3.0f;
    return (shifted < 0.0f ? 0.0f : shifted > 6.0f ? 6.0f : shifted) / 6.0f;
}

#define UNARY(name, formula) \
    KERNEL(name##_f32, View x, View y) { map(x, y, [](float x) { return formula; }); }

UNARY(sqr, x * x)
UNARY(sqrt, sqrtf(x))
UNARY(exp, expf(x))
UNARY(log, logf(x))
UNARY(sin, sinf(x))
UNARY(cos, cosf(x))
UNARY(neg, -x)
UNARY(abs, fabsf(x))
UNARY(step, x > 0.0f ? 1.0f : 0.0f)
UNARY(relu, relu(x))
UNARY(silu, silu(x))
UNARY(gelu, gelu(x))
UNARY(gelu_erf, gelu_erf(x))
UNARY(gelu_quick, gelu_quick(x))
UNARY(sigmoid, sigmoid(x))
UNARY(tanh, tanhf(x))
UNARY(hardsigmoid, hardsigmoid(x))
UNARY(hardswish, x * hardsigmoid(x))
UNARY(softplus, softplus(x))

// factor x + bias
KERNEL(scale_f32, View x, View y, float factor, float bias) {
    map(x, y, [=](float x) { return factor * x + bias; });
}

// min(max(x, low), high); NaN stays.
KERNEL(clamp_f32, View x, View y, float low, float high) {
    map(x, y, [=](float x) { return x < low ? low : x > high ? high : x; });
}

// x^exponent
KERNEL(pow_scalar_f32, View x, View y, float exponent) {
    map(x, y, [=](float x) { return (float)pow((double)x, (double)exponent); });
}

// x where positive, else slope x
KERNEL(leaky_relu_f32, View x, View y, float slope) {
    map(x, y, [=](float x) { return x > 0.0f ? x : slope * x; });
}

// x where positive, else alpha (exp x - 1)
KERNEL(elu_f32, View x, View y, float alpha) {
    map(x, y, [=](float x) { return x > 0.0f ? x : alpha * expm1f(x); });
}
