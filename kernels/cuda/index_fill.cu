// One number at the given places of one dimension, in a tensor that holds x already: y[i] = value where i[dimension] is
// among `index`.
//
//   index  i32 [n]          y  words, without gaps          a thread for each index and each place of the other
//          dimensions
//
// What the number is as a word is the host's business. An index outside of the dimension is told and not used; of a
// tensor without elements too, by a thread for each index.
#include "words.cuh"

template <class Word>
DEVICE void fill(const View& index, const View& y, int dimension, Word value, Fault* fault) {
    // Elements behind each other that one index names.
    Index len = 1;
    for (int d = 0; d < dimension; d++) len *= y.sizes[d];
    const Index count = index.sizes[0], size = y.sizes[dimension], element = thread_number();
    const bool is_empty = elements(y) == 0;
    if (element >= (is_empty ? count : elements(y) / size * count)) return;
    const Index place = cells<int>(index)[(is_empty ? element : element / len % count) * index.steps[0]];
    if (!lies_within(place, size, fault) || is_empty) return;
    cells_to_write<Word>(y)[(element / len / count * size + place) * len + element % len] = value;
}

#define INDEX_FILL(Word, bits)                                                                    \
    KERNEL(index_fill_word##bits, View index, View y, int dimension, int value, Fault* fault) {   \
        fill<Word>(index, y, dimension, (Word)value, fault);                                      \
    }

INDEX_FILL(Word16, 16)
INDEX_FILL(Word32, 32)
