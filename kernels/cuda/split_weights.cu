// Weights of blocks of 32 codes between the file's form and planes (split_blocks.cuh), bit for bit. A thread for each
// block.
#include "split_blocks.cuh"

// Words of 16 bits of each part.
template <class S>
struct Words {
    static constexpr int HEAD = sizeof(typename S::Head) / 2, REST = S::REST_BYTES / 2, CODES = 8;
    // Fifth bits stand before the codes, the last codes behind the first.
    static constexpr int REST_FIRST = S::REST_BYTES == 16 ? HEAD + CODES : HEAD, CODES_FIRST = S::REST_BYTES == 16 ? HEAD : HEAD + REST;
    static_assert((HEAD + REST + CODES) * 2 == S::File::BYTES, "parts are all that a block has");
};

// The part of block `b` in its plane.
DEVICE unsigned short* part_of(unsigned char* plane, Index b, int words) {
    return reinterpret_cast<unsigned short*>(plane) + b * words;
}

DEVICE void copy_words(unsigned short* target, const unsigned short* source, int words) {
    for (int i = 0; i < words; i++) target[i] = source[i];
}

// Block number `thread` of `file` becomes block `first` + `thread` of the planes.
template <class S>
DEVICE void split(const unsigned char* file, const Planes& planes, Index first, Index count) {
    typedef Words<S> W;
    const Index number = thread_number(), b = first + number;
    if (number >= count) return;
    const unsigned short* const block = reinterpret_cast<const unsigned short*>(file + number * S::File::BYTES);
    copy_words(part_of(planes.heads, b, W::HEAD), block, W::HEAD);
    copy_words(part_of(planes.rest, b, W::REST), block + W::REST_FIRST, W::REST);
    copy_words(part_of(planes.codes, b, W::CODES), block + W::CODES_FIRST, W::CODES);
}

// And back.
template <class S>
DEVICE void join(const Planes& planes, unsigned char* file, Index first, Index count) {
    typedef Words<S> W;
    const Index number = thread_number(), b = first + number;
    if (number >= count) return;
    unsigned short* const block = reinterpret_cast<unsigned short*>(file + number * S::File::BYTES);
    copy_words(block, part_of(planes.heads, b, W::HEAD), W::HEAD);
    copy_words(block + W::REST_FIRST, part_of(planes.rest, b, W::REST), W::REST);
    copy_words(block + W::CODES_FIRST, part_of(planes.codes, b, W::CODES), W::CODES);
}

#define SPLIT_WEIGHTS(type, S)                                                                                                         \
    KERNEL(split_##type, unsigned char* codes, unsigned char* rest, unsigned char* heads, unsigned char* file, Index first, Index count) { \
        split<S>(file, Planes{codes, rest, heads}, first, count);                                                                      \
    }                                                                                                                                  \
    KERNEL(join_##type, unsigned char* codes, unsigned char* rest, unsigned char* heads, unsigned char* file, Index first, Index count) {  \
        join<S>(Planes{codes, rest, heads}, file, first, count);                                                                       \
    }

FOR_EACH_SPLIT(SPLIT_WEIGHTS)
