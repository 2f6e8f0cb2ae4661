// cache[:, rows[t]] = x[:, t], rounded to the type of the cache: new keys or values. Of several tokens of one row the
// last stays.
//
//   x  f32 [width, tokens], any strides     rows  i32 [tokens], counted over all sequences     cache  [width, context,
//      sequences], without gaps
//
// A block of threads for each token. A kernel's last words are the types of the caches; one with two stores keys and
// values of the same tokens.
#include "ptx.cuh"
#include "set_row.cuh"

#define KV_STORE(T, suffix)                                                     \
    KERNEL(kv_store_##suffix, View x, View rows, View cache, Fault* fault) {    \
        wait_for_turn();                                                        \
        DYNAMIC_SHARED(float, shared);                                          \
        set_row<T>(x, rows, cache, blockIdx.x, fault, shared);                  \
    }

KV_STORE(float, f32)
KV_STORE(half, f16)
KV_STORE(BlockQ8_0, q8_0)

// Blocks of the keys, then those of the values.
template <class K, class V>
DEVICE void store_pair(const View& k, const View& v, const View& rows, const View& keys, const View& values, Fault* fault) {
    wait_for_turn();
    DYNAMIC_SHARED(float, shared);
    const Index tokens = k.sizes[1], row = blockIdx.x;
    if (row < tokens) {
        set_row<K>(k, rows, keys, row, fault, shared);
    } else {
        set_row<V>(v, rows, values, row - tokens, fault, shared);
    }
}

#define KV_STORE_PAIR(key, K, value, V)                                                                                   \
    KERNEL(kv_store_pair_##key##_##value, View k, View v, View rows, View keys, View values, Fault* fault) {              \
        store_pair<K, V>(k, v, rows, keys, values, fault);                                                                \
    }

KV_STORE_PAIR(f32, float, f32, float)
KV_STORE_PAIR(f32, float, f16, half)
KV_STORE_PAIR(f32, float, q8_0, BlockQ8_0)
KV_STORE_PAIR(f16, half, f32, float)
KV_STORE_PAIR(f16, half, f16, half)
KV_STORE_PAIR(f16, half, q8_0, BlockQ8_0)
KV_STORE_PAIR(q8_0, BlockQ8_0, f32, float)
KV_STORE_PAIR(q8_0, BlockQ8_0, f16, half)
KV_STORE_PAIR(q8_0, BlockQ8_0, q8_0, BlockQ8_0)
