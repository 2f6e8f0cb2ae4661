// The same elements in another type (cpy), or in the same one without gaps.
//
//   floats, integers  to  f32, f16, bf16    to the nearest, halves to even
//   floats            to  i32, i64          cut toward zero
//   any type          to  q4_0, q8_0        by f32; a warp for each block
//
//   x  any strides; of blocks, rows of them          y  the same sizes, without gaps          a thread for each element
//
// Names say from which type to which. What keeps its type is moved as words, blocks too.
#include "codec.cuh"
#include "words.cuh"

// Rows of blocks are whole warps: all lanes of one go on, or none.
template <class From, class To>
DEVICE void cast(const View& x, const View& y) {
    const Index element = thread_number();
    if (element >= elements(y)) return;
    store(element_at(cells<From>(x), distance_of(x, element)), cells_to_write<To>(y), element);
}

#define CAST(From, from, To, to) \
    KERNEL(cpy_##from##_##to, View x, View y) { cast<From, To>(x, y); }

CAST(float, f32, half, f16)
CAST(float, f32, Bf16, bf16)
CAST(float, f32, int, i32)
CAST(float, f32, Index, i64)
CAST(float, f32, BlockQ4_0, q4_0)
CAST(float, f32, BlockQ8_0, q8_0)

CAST(half, f16, float, f32)
CAST(half, f16, Bf16, bf16)
CAST(half, f16, int, i32)
CAST(half, f16, Index, i64)
CAST(half, f16, BlockQ4_0, q4_0)
CAST(half, f16, BlockQ8_0, q8_0)

CAST(Bf16, bf16, float, f32)
CAST(Bf16, bf16, half, f16)
CAST(Bf16, bf16, int, i32)
CAST(Bf16, bf16, Index, i64)
CAST(Bf16, bf16, BlockQ4_0, q4_0)
CAST(Bf16, bf16, BlockQ8_0, q8_0)

CAST(int, i32, float, f32)
CAST(int, i32, half, f16)
CAST(int, i32, Bf16, bf16)
CAST(int, i32, Index, i64)
CAST(int, i32, BlockQ4_0, q4_0)
CAST(int, i32, BlockQ8_0, q8_0)

CAST(Index, i64, float, f32)
CAST(Index, i64, half, f16)
CAST(Index, i64, Bf16, bf16)
CAST(Index, i64, int, i32)
CAST(Index, i64, BlockQ4_0, q4_0)
CAST(Index, i64, BlockQ8_0, q8_0)

CAST(BlockQ4_0, q4_0, float, f32)
CAST(BlockQ4_0, q4_0, half, f16)
CAST(BlockQ4_0, q4_0, Bf16, bf16)
CAST(BlockQ4_0, q4_0, int, i32)
CAST(BlockQ4_0, q4_0, Index, i64)
CAST(BlockQ4_0, q4_0, BlockQ8_0, q8_0)

CAST(BlockQ8_0, q8_0, float, f32)
CAST(BlockQ8_0, q8_0, half, f16)
CAST(BlockQ8_0, q8_0, Bf16, bf16)
CAST(BlockQ8_0, q8_0, int, i32)
CAST(BlockQ8_0, q8_0, Index, i64)
CAST(BlockQ8_0, q8_0, BlockQ4_0, q4_0)

template <class Word>
DEVICE void move(const View& x, const View& y) {
    const Index element = thread_number();
    if (element >= elements(y)) return;
    cells_to_write<Word>(y)[element] = cells<Word>(x)[distance_of(x, element)];
}

#define MOVE(Word, bits) \
    KERNEL(cpy_word##bits, View x, View y) { move<Word>(x, y); }

FOR_EACH_WORD(MOVE)
