// cache[:, rows[t]] = x[:, t], rounded to the type of the cache: new keys or values. Of several tokens of one row the last stays.
//
//   x  f32 [width, tokens], any strides     rows  i32 [tokens], counted over all sequences     cache  [width, context, sequences], without gaps
//
// A block of threads for each token. A kernel's last word is the type of the cache.
#include "set_row.cuh"

#define KV_STORE(T, suffix)                                                     \
    KERNEL(kv_store_##suffix, View x, View rows, View cache, Fault* fault) {    \
        DYNAMIC_SHARED(float, shared);                                          \
        set_row<T>(x, rows, cache, fault, shared);                              \
    }

KV_STORE(float, f32)
KV_STORE(half, f16)
KV_STORE(Q8_0, q8_0)
