// New rows in a tensor that holds the table already: y[:, rows[t]] = x[:, t] in the type of the table; the last of
// several on one row stays.
//
//   x  f32 [width, t], any strides          rows  i32 [t]          y  [width, n], without gaps          a block of
//      threads for each row of x
//
// A kernel's last word is the type of the table. A row outside of the table is told and not written.
#include "set_row.cuh"

#define SET_ROWS(T, suffix)                                                     \
    KERNEL(set_rows_##suffix, View x, View rows, View y, Fault* fault) {        \
        DYNAMIC_SHARED(float, shared);                                          \
        set_row<T>(x, rows, y, blockIdx.x, fault, shared);                      \
    }

SET_ROWS(float, f32)
SET_ROWS(half, f16)
SET_ROWS(Bf16, bf16)
SET_ROWS(BlockQ4_0, q4_0)
SET_ROWS(BlockQ8_0, q8_0)
