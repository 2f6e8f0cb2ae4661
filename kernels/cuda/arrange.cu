// Elements to other places; n are the sizes of x, i the indices of y.
//
//   repeat             y[i] = x[i mod n]
//   repeat_interleave  y[i] = x[floor(i / times)] along one dimension
//   pad                y[i] = x[i - before], zeros around
//   roll               y[i] = x[(i - shift) mod n]                          0 <= shift < n, or 0
//
//   x  words, any strides          y  words, without gaps          a thread for each element
#include "words.cuh"

template <class Word>
DEVICE void repeat(const View& x, const View& y) {
    const Index element = thread_number();
    if (element >= elements(y)) return;
    cells_to_write<Word>(y)[element] = cells<Word>(x)[distance(x, repeated(x, place_of(y, element)))];
}

template <class Word>
DEVICE void repeat_interleave(const View& x, const View& y, int dimension, Index times) {
    const Index element = thread_number();
    if (element >= elements(y)) return;
    Place place = place_of(y, element);
    for (int d = 0; d < 4; d++) place.i[d] = d == dimension ? place.i[d] / times : place.i[d];
    cells_to_write<Word>(y)[element] = cells<Word>(x)[distance(x, place)];
}

template <class Word>
DEVICE void pad(const View& x, const View& y, const Place& before) {
    const Index element = thread_number();
    if (element >= elements(y)) return;
    Place place = place_of(y, element);
    const bool inside = shift_into(x, place, before);
    cells_to_write<Word>(y)[element] = inside ? cells<Word>(x)[distance(x, place)] : Word(0);
}

template <class Word>
DEVICE void roll(const View& x, const View& y, const Place& shift) {
    const Index element = thread_number();
    if (element >= elements(y)) return;
    Place place = place_of(y, element);
    for (int d = 0; d < 4; d++) {
        place.i[d] -= shift.i[d];
        if (place.i[d] < 0) place.i[d] += x.sizes[d];
    }
    cells_to_write<Word>(y)[element] = cells<Word>(x)[distance(x, place)];
}

#define ARRANGE(Word, bits)                                                                                         \
    KERNEL(repeat_word##bits, View x, View y) { repeat<Word>(x, y); }                                               \
    KERNEL(repeat_interleave_word##bits, View x, View y, int dimension, Index times) {                              \
        repeat_interleave<Word>(x, y, dimension, times);                                                            \
    }                                                                                                               \
    KERNEL(pad_word##bits, View x, View y, Index before0, Index before1, Index before2, Index before3) {            \
        pad<Word>(x, y, {{before0, before1, before2, before3}});                                                    \
    }                                                                                                               \
    KERNEL(roll_word##bits, View x, View y, Index shift0, Index shift1, Index shift2, Index shift3) {               \
        roll<Word>(x, y, {{shift0, shift1, shift2, shift3}});                                                       \
    }

FOR_EACH_WORD(ARRANGE)
