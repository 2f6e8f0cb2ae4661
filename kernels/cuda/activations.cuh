// Functions that models activate with, in f32. exp overflows only where the quotient is 0.
#pragma once

#include "device.cuh"

// max(x, 0); NaN stays.
DEVICE float relu(float x) {
    return x < 0.0f ? 0.0f : x;
}

// 1 / (1 + exp(-x))
DEVICE float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

// x / (1 + exp(-x))
DEVICE float silu(float x) {
    return x / (1.0f + expf(-x));
}

// x (1 + tanh u) / 2 = x / (1 + exp(-2 u)) with 2 u = 2 sqrt(2 / pi) (x + 0.044715 x^3)
DEVICE float gelu(float x) {
    return x / (1.0f + expf(-x * fmaf(x * x, 0.071354814f, 1.595769f)));
}

// x (1 + erf(x / sqrt 2)) / 2 = x erfc(-x / sqrt 2) / 2, which keeps its digits far below zero.
DEVICE float gelu_erf(float x) {
    return 0.5f * x * erfcf(-0.70710678f * x);
}

// x / (1 + exp(-1.702 x))
DEVICE float gelu_quick(float x) {
    return x / (1.0f + expf(-1.702f * x));
}

// ln(1 + exp x), without overflow.
DEVICE float softplus(float x) {
    return relu(x) + log1pf(expf(-fabsf(x)));
}

// That of a gated activation, in the order of the operators: reglu, geglu, geglu_erf, geglu_quick, swiglu.
DEVICE float activated(int function, float x) {
    switch (function) {
        case 0: return relu(x);
        case 1: return gelu(x);
        case 2: return gelu_erf(x);
        case 3: return gelu_quick(x);
        default: return silu(x);
    }
}
