// Elements that are moved, not computed with: words of as many bits, whatever they mean.
#pragma once

#include "elements.cuh"

typedef unsigned short Word16;
typedef unsigned int Word32;
typedef unsigned long long Word64;

// A kernel for words of each size: MACRO(type, bits).
#define FOR_EACH_WORD(MACRO) \
    MACRO(Word16, 16)        \
    MACRO(Word32, 32)        \
    MACRO(Word64, 64)
