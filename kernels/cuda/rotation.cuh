// Rotation of pairs (x_1, x_2) by an angle that grows with the position; formulas at the head of rope.cu. Angles are in f64, less whole turns, and only then
// rounded.
#pragma once

#include "blocks.cuh"

// What the operator says of all tokens.
struct Rotation {
    // Rotated elements for each row of positions.
    int dimensions;
    // Whether pairs are (i, i + dimensions / 2), not (2 i, 2 i + 1).
    int halves;
    float base;
    // Frequencies from `high` on are divided by it, those before `low` are not.
    float factor, low, high;
    // What sine and cosine are multiplied by.
    float magnitude;
};

struct Turn {
    float sine, cosine;
};

DEVICE Turn turn_of(const Rotation& rotation, int pair, Index position, float divisor) {
    constexpr double TURN = 6.283185307179586;
    const double rise = (pair - (double)rotation.low) / fmax(0.001, (double)rotation.high - rotation.low);
    const double kept = 1.0 - fmin(fmax(rise, 0.0), 1.0);
    const double share = (1.0 - kept) / rotation.factor + kept;
    const double frequency = pow((double)rotation.base, -2.0 * pair / rotation.dimensions) / divisor * share;
    const double angle = (double)position * frequency;
    const float rest = (float)fma(-TURN, rint(angle / TURN), angle);
    return Turn{rotation.magnitude * sinf(rest), rotation.magnitude * cosf(rest)};
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
