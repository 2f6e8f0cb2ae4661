// One tensor with another in it, or added to it.
//
//   set  y[start + i] = b[i], elsewhere y = a
//   acc  y[start + i] = a[start + i] + b[i], elsewhere y = a
//
//   a, b  words, for acc f32, any strides          y  the sizes of a, without gaps          a thread for each element
#include "words.cuh"

template <class Word>
DEVICE void set(const View& a, const View& b, const View& y, const Place& start) {
    const Index element = thread_number();
    if (element >= elements(y)) return;
    const Place place = place_of(y, element);
    Place under = place;
    const bool inside = shift_into(b, under, start);
    cells_to_write<Word>(y)[element] = inside ? cells<Word>(b)[distance(b, under)] : cells<Word>(a)[distance(a, place)];
}

#define SET(Word, bits)                                                                                                     \
    KERNEL(set_word##bits, View a, View b, View y, Index start0, Index start1, Index start2, Index start3) {               \
        set<Word>(a, b, y, {{start0, start1, start2, start3}});                                                             \
    }

FOR_EACH_WORD(SET)

KERNEL(acc_f32, View a, View b, View y, Index start0, Index start1, Index start2, Index start3) {
    const Index element = thread_number();
    if (element >= elements(y)) return;
    const Place place = place_of(y, element);
    Place under = place;
    const bool inside = shift_into(b, under, {{start0, start1, start2, start3}});
    const float kept = cells<float>(a)[distance(a, place)];
    cells_to_write<float>(y)[element] = inside ? kept + cells<float>(b)[distance(b, under)] : kept;
}
