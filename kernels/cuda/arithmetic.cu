// Arithmetic of two tensors, each repeated along the dimensions where the other is longer: y = a o b.
//
//   a  f32, any strides          b  f32, f16 or bf16, any strides          y  f32, without gaps          a thread for
//      each element
//
// A kernel's last word is the type of b. Powers are computed in f64 and rounded once.
#include "elements.cuh"
#include "ptx.cuh"

template <class B, class Function>
DEVICE void combine(const View& a, const View& b, const View& y, Function function) {
    wait_for_turn();
    const Index element = thread_number();
    if (element >= elements(y)) return;
    const float left = cells<float>(a)[repeated_distance(a, y, element)];
    const float right = to_float(cells<B>(b)[repeated_distance(b, y, element)]);
    cells_to_write<float>(y)[element] = function(left, right);
}

#define ARITHMETIC_WITH(name, B, suffix, formula)                    \
    KERNEL(name##_f32_##suffix, View a, View b, View y) {            \
        combine<B>(a, b, y, [](float a, float b) { return formula; }); \
    }

#define ARITHMETIC(name, formula)               \
    ARITHMETIC_WITH(name, float, f32, formula)  \
    ARITHMETIC_WITH(name, half, f16, formula)   \
    ARITHMETIC_WITH(name, Bf16, bf16, formula)

ARITHMETIC(add, a + b)
ARITHMETIC(sub, a - b)
ARITHMETIC(mul, a * b)
ARITHMETIC(div, a / b)
ARITHMETIC(pow, (float)pow((double)a, (double)b))
