// Rotation of pairs (x_1, x_2) of a head: the angle at a position, its sine and cosine, and what becomes of the pair.
// The formulas of pairs are at the head of rope.cu.
//
//   a_i = position base^(-2 i / dimensions) / factors[i] ((1 - r_i) / factor + r_i)
//   r_i = 1 - clamp((i - low) / max(0.001, high - low), 0, 1)
//
// The product of a position and a frequency needs more bits than an f32 has, and most cards compute with f64 at a small
// part of the rate: frequencies and angles are sums of two f32, of 47 bits together. They count turns, so that whole
// ones fall away exactly; the rest alone is rounded to an f32.
#pragma once

#include "blocks.cuh"

// high + low, where low is at most half of high's last place.
struct Twofold {
    float high, low;
};

// As it says for |high| >= |low|.
DEVICE Twofold twofold(float high, float low) {
    const float sum = high + low;
    return Twofold{sum, low - (sum - high)};
}

DEVICE Twofold operator+(Twofold a, Twofold b) {
    const float sum = a.high + b.high, from_b = sum - a.high, rest = (a.high - (sum - from_b)) + (b.high - from_b);
    return twofold(sum, rest + (a.low + b.low));
}

DEVICE Twofold operator*(Twofold a, Twofold b) {
    const float product = a.high * b.high, rest = fmaf(a.high, b.high, -product);
    return twofold(product, fmaf(a.low, b.high, fmaf(a.high, b.low, rest)));
}

DEVICE Twofold operator/(Twofold a, float b) {
    const float quotient = a.high / b;
    // Of what is divided by an infinite number nothing is left.
    if (quotient == 0.0f) return Twofold{quotient, 0.0f};
    return twofold(quotient, (fmaf(-quotient, b, a.high) + a.low) / b);
}

// What the operator says of all tokens.
struct Rotation {
    // Rotated elements for each row of positions.
    int dimensions;
    // Whether pairs are (i, i + dimensions / 2), not (2 i, 2 i + 1).
    int halves;
    // base^(-2 / dimensions): how many times as fast as a pair the next one turns.
    Twofold ratio;
    // Frequencies from `high` on are divided by it, those before `low` are not.
    float factor, low, high;
    // What sine and cosine are multiplied by.
    float magnitude;
};

struct Turn {
    float sine, cosine;
};

// 2 pi, and its reciprocal.
DEVICE Twofold whole_turn() { return Twofold{6.28318548f, -1.74845553e-7f}; }
DEVICE Twofold turns_of_one() { return Twofold{0.159154937f, 6.42063824e-9f}; }

// Turns for each position, as the base says: the ratio's powers of two, multiplied.
DEVICE Twofold turns_of_pair(const Rotation& rotation, int pair) {
    Twofold turns = turns_of_one(), power = rotation.ratio;
    for (int rest = pair; rest > 0; rest /= 2) {
        if (rest % 2 == 1) turns = turns * power;
        power = power * power;
    }
    return turns;
}

// What the scaling multiplies a frequency by.
DEVICE Twofold kept_share(const Rotation& rotation, int pair) {
    const float above = (float)pair - rotation.low, width = fmaxf(0.001f, rotation.high - rotation.low);
    if (above <= 0.0f) return Twofold{1.0f, 0.0f};
    if (above >= width) return Twofold{1.0f, 0.0f} / rotation.factor;
    const Twofold divided = Twofold{above, 0.0f} / width;
    return divided / rotation.factor + (Twofold{1.0f, 0.0f} + Twofold{-divided.high, -divided.low});
}

DEVICE Turn turn_of(const Rotation& rotation, int pair, Index position, float divisor) {
    const float rounded = (float)position;
    const Twofold turns = Twofold{rounded, (float)(position - (Index)rounded)} * (turns_of_pair(rotation, pair) / divisor * kept_share(rotation, pair));
    const Twofold rest = twofold(turns.high - rintf(turns.high), turns.low);
    const float angle = fmaf(rest.high, whole_turn().high, fmaf(rest.high, whole_turn().low, rest.low * whole_turn().high));
    return Turn{rotation.magnitude * sinf(angle), rotation.magnitude * cosf(angle)};
}

struct Pair {
    float first, second;
};

DEVICE Pair turned(const Turn& turn, float x_1, float x_2) {
    return Pair{x_1 * turn.cosine - x_2 * turn.sine, x_1 * turn.sine + x_2 * turn.cosine};
}

// Where in a head the elements of a pair are.
DEVICE int first_of_pair(const Rotation& rotation, int pair) { return rotation.halves ? pair : 2 * pair; }
DEVICE int between_pair(const Rotation& rotation) { return rotation.halves ? rotation.dimensions / 2 : 1; }
