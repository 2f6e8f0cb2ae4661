// y[d, h, t] = sum_j v[d, j, g] softmax(cap(scale k[:, j, g] . q[:, t, h]) + slope mask[j, t])_j, g = h / (heads / kv
// heads), for each batch by itself: q f32 or f16 [D, tokens, heads, batch], k [D, positions, kv heads, batch] and v [E,
// positions, kv heads, batch] f32 or f16, mask f32 or f16 [positions, tokens, ...] where there is one, y f32 [E, heads,
// tokens, batch]; cap(a) = softcap tanh(a / softcap).
//
// A block of 128 threads for each row of y: attention.cuh.
#include "attention.cuh"

template <class Q, class K, class V>
DEVICE void attend_row(const View& q, const View& k, const View& v, const View& mask, int mask_type, const View& y, float scale,
                       float max_bias, float softcap) {
    DYNAMIC_SHARED(float, shared);
    const Index heads = q.sizes[2], number = blockIdx.x % heads, row = blockIdx.x / heads;
    const Index token = row % q.sizes[1], batch = row / q.sizes[1], kv_head = number / (heads / k.sizes[2]);
    const Head<Q, K, V> head{
        row_at<Q>(q, token * q.steps[1] + number * q.steps[2] + batch * q.steps[3]),
        row_at<K>(k, kv_head * k.steps[2] + batch * k.steps[3]),
        row_at<V>(v, kv_head * v.steps[2] + batch * v.steps[3]),
        k.steps[1], v.steps[1], q.sizes[0], v.sizes[0], k.sizes[1],
        mask_row(mask, mask_type, token, number, batch, slope_of(max_bias, number, heads)), scale, softcap};
    attend(head, shared, cells_to_write<float>(y) + number * y.steps[1] + token * y.steps[2] + batch * y.steps[3], y.steps[0]);
}

#define FLASH_ATTN(query, Q, key, K, value, V)                                                                               \
    KERNEL(flash_attn_##query##_##key##_##value, View q, View k, View v, View mask, int mask_type, View y, float scale,      \
           float max_bias, float softcap) {                                                                                  \
        attend_row<Number<Q>, Number<K>, Number<V>>(q, k, v, mask, mask_type, y, scale, max_bias, softcap);                  \
    }

FLASH_ATTN(f32, float, f32, float, f32, float)
FLASH_ATTN(f32, float, f32, float, f16, half)
FLASH_ATTN(f32, float, f16, half, f32, float)
FLASH_ATTN(f32, float, f16, half, f16, half)
FLASH_ATTN(f16, half, f32, float, f32, float)
FLASH_ATTN(f16, half, f32, float, f16, half)
FLASH_ATTN(f16, half, f16, half, f32, float)
FLASH_ATTN(f16, half, f16, half, f16, half)
