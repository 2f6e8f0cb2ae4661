// What the kernels that measure a card share.
#pragma once

#include "device.cuh"

// A number that no result is: an array of it is never read, and sums go past it.
constexpr int NEVER = -559038737;

// Sums of a thread that do not wait for each other.
constexpr int CHAINS = 8;
