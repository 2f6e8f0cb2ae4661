// f16 as cuda_fp16.h has it. Conversions are exact, with F16C and without; a NaN becomes 0x7fff as on cards.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__F16C__)
#include <immintrin.h>
#endif

struct half {
    unsigned short bits;
};
typedef half __half;

struct alignas(4) half2 {
    half x, y;
};
typedef half2 __half2;

namespace sim {

// The readable rule of __half2float.
inline float half_to_float(unsigned short bits) {
    const uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    uint32_t wide;
    if (exponent == 31) {
        wide = 0x7f800000 | fraction << 13 | (fraction != 0 ? 0x400000 : 0);
    } else if (exponent != 0) {
        wide = (exponent + 112) << 23 | fraction << 13;
    } else {
        const float subnormal = (float)fraction * 0x1p-24f;
        std::memcpy(&wide, &subnormal, 4);
    }
    wide |= sign;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
}

// The readable rule of __float2half_rn: to the nearest, halves to even, but for NaN.
inline unsigned short half_from_float(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const unsigned short sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits >= 0x477ff000) return sign | 0x7c00;
    if (bits < 0x38800000) {
        // Subnormal: a sum with 0.5 rounds at 2^-24.
        float sum;
        std::memcpy(&sum, &bits, 4);
        sum += 0.5f;
        std::memcpy(&bits, &sum, 4);
        return (unsigned short)(sign | (bits - 0x3f000000));
    }
    return (unsigned short)(sign | (bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13);
}

}  // namespace sim

inline float __half2float(half x) {
#if defined(__F16C__)
    return _cvtsh_ss(x.bits);
#else
    return sim::half_to_float(x.bits);
#endif
}

inline half __float2half_rn(float x) {
    if (x != x) return half{0x7fff};
#if defined(__F16C__)
    return half{(unsigned short)_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT)};
#else
    return half{sim::half_from_float(x)};
#endif
}

inline half __float2half(float x) { return __float2half_rn(x); }
inline half __ushort_as_half(unsigned short bits) { return half{bits}; }
inline unsigned short __half_as_ushort(half x) { return x.bits; }
inline half2 __halves2half2(half low, half high) { return half2{low, high}; }
inline half __low2half(half2 x) { return x.x; }
inline half __high2half(half2 x) { return x.y; }
inline float __low2float(half2 x) { return __half2float(x.x); }
inline float __high2float(half2 x) { return __half2float(x.y); }
inline half2 __floats2half2_rn(float low, float high) { return half2{__float2half_rn(low), __float2half_rn(high)}; }
inline half2 __hsub2(half2 x, half2 y) {
    return half2{__float2half_rn(__half2float(x.x) - __half2float(y.x)), __float2half_rn(__half2float(x.y) - __half2float(y.y))};
}
