// One tensor behind another along one dimension: y[i] = a[i] where i[dimension] < a.size, else b[i - a.size] there.
//
//   a, b  words, any strides          y  words, without gaps          a thread for each element
#include "words.cuh"

template <class Word>
DEVICE void concat(const View& a, const View& b, const View& y, int dimension) {
    const Index element = thread_number();
    if (element >= elements(y)) return;
    Place place = place_of(y, element);
    bool in_a = true;
    for (int d = 0; d < 4; d++) {
        if (d != dimension || place.i[d] < a.sizes[d]) continue;
        place.i[d] -= a.sizes[d];
        in_a = false;
    }
    const View& source = in_a ? a : b;
    cells_to_write<Word>(y)[element] = cells<Word>(source)[distance(source, place)];
}

#define CONCAT(Word, bits) \
    KERNEL(concat_word##bits, View a, View b, View y, int dimension) { concat<Word>(a, b, y, dimension); }

FOR_EACH_WORD(CONCAT)
