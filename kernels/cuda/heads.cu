// What heads.cuh says of all heads and tokens, behind products of other launches: a warp for each head of a token.
#include "heads.cuh"
#include "ptx.cuh"

KERNEL(heads_f32, HEADS_ARGUMENTS) {
    wait_for_turn();
    const unsigned number = (unsigned)thread_number() / WARP, all = (unsigned)(q.rows + k.rows + v.rows) / behind.head_size;
    if (number < all * behind.tokens) finish_head(&q, &k, &v, &behind, number % all, (int)(number / all));
}
