// Attention for few tokens: the positions are divided among blocks, so that one token fills the card, and the last
// block of a row of heads puts its parts together in their order (tail.cuh). Where `codes` is not 0, there go the bytes
// that quantize_q8_1 gives for y: of one batch, with E a multiple of 32. Formulas at kv_attention.cu and flash_attn.cu,
// arguments in attention_rows.cuh.
//
//   positions, 32 a chunk   one after the other to the warps of all splits in turn, so that what a mask shows is shared
//                           evenly, however little it is
//   a warp                  HEADS heads that share keys and values: eight neighbouring elements of a key a lane, 16
//                           bytes of f16, and as many keys
//                           side by side as there are lanes for
//   a part                  of each head the largest score m, total = sum exp(s - m), mixed = sum exp(s - m) v
//
// A block has four warps: where more than HEADS heads share keys, two or all of them look at the same keys for other
// heads.
//
// A score is summed in chains of eight, which are added in pairs. Chunks of which nothing is to be seen cost a look at
// the mask, and what a position holds that is not to be seen is not read.
#include "attention_rows.cuh"
#include "ptx.cuh"
#include "tail.cuh"

constexpr int SPLIT_WARPS = 4, CHUNK = WARP, PIECE = 8;

// Eight neighbouring elements of a row as they are stored.
template <class F>
struct Piece;

template <>
struct Piece<Number<half>> {
    uint4 words;
    __device__ __forceinline__ void load(const unsigned char* row, int piece) { words = reinterpret_cast<const uint4*>(row)[piece]; }
    __device__ __forceinline__ void decode(float (&x)[PIECE]) const {
        const unsigned pairs[] = {words.x, words.y, words.z, words.w};
        for (int i = 0; i < 4; i++) {
            x[2 * i] = __half2float(__ushort_as_half((unsigned short)(pairs[i] & 0xffff)));
            x[2 * i + 1] = __half2float(__ushort_as_half((unsigned short)(pairs[i] >> 16)));
        }
    }
};

template <>
struct Piece<Number<float>> {
    float4 low, high;
    __device__ __forceinline__ void load(const unsigned char* row, int piece) {
        low = reinterpret_cast<const float4*>(row)[2 * piece];
        high = reinterpret_cast<const float4*>(row)[2 * piece + 1];
    }
    __device__ __forceinline__ void decode(float (&x)[PIECE]) const {
        x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
        x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
    }
};

// Blocks of 34 bytes begin at even addresses: codes come in the words around them and are shifted together.
template <>
struct Piece<Q8_0> {
    unsigned first, second;
    half scale;
    __device__ __forceinline__ void load(const unsigned char* row, int piece) {
        const unsigned char* const block = row + piece / 4 * Q8_0::BYTES;
        const unsigned char* const codes = block + 2 + piece % 4 * PIECE;
        const unsigned shift = (unsigned)(size_t)codes % 4 * 8;
        const unsigned* const words = reinterpret_cast<const unsigned*>(codes - shift / 8);
        const unsigned low = words[0], middle = words[1];
        const unsigned high = shift == 0 ? 0 : *reinterpret_cast<const unsigned short*>(codes + 6);
        scale = *reinterpret_cast<const half*>(block);
        first = __funnelshift_r(low, middle, shift);
        second = __funnelshift_r(middle, high, shift);
    }
    __device__ __forceinline__ void decode(float (&x)[PIECE]) const {
        const float step = __half2float(scale);
        for (int i = 0; i < PIECE; i++) x[i] = step * (float)(signed char)((i < 4 ? first : second) >> i % 4 * 8);
    }
};

// What a group of lanes has of each head: its eight elements of the mixture, the largest score, and the sum of weights.
template <int HEADS>
struct Gathered {
    float largest[HEADS], total[HEADS], mixed[HEADS][PIECE];
};

// What scores are subtracted by: of scores of -infinity only, the exponentials are 0.
DEVICE float subtracted(float largest) {
    return largest == -INFINITY ? 0.0f : largest;
}

// Where a warp's lanes stand: `lanes` of them share a key, a power of two; `key` is the number of this group of lanes.
struct Stand {
    int lanes, key, keys, piece;
};

// The queries of the block's heads, the elements of this lane; zeros behind the end of a head.
template <int HEADS>
DEVICE void load_queries(const Attention& attention, const Stand& stand, int token, int batch, int first_head, float (&query)[HEADS][PIECE]) {
    const View& q = attention.q;
    for (int h = 0; h < HEADS; h++) {
        const int head = min(first_head + h, attention.heads() - 1);
        const float* const row = cells<float>(q) + token * q.steps[1] + head * q.steps[2] + batch * q.steps[3];
        for (int i = 0; i < PIECE; i++) {
            const int d = stand.piece * PIECE + i;
            query[h][i] = d < q.sizes[0] ? row[d * q.steps[0]] : 0.0f;
        }
    }
}

// The products of the queries with one key, the same in all lanes that share it.
template <int HEADS>
DEVICE void products(const float (&query)[HEADS][PIECE], const float (&key)[PIECE], int lanes, float (&score)[HEADS]) {
    for (int h = 0; h < HEADS; h++) {
        score[h] = 0.0f;
        for (int i = 0; i < PIECE; i++) score[h] = fmaf(key[i], query[h][i], score[h]);
    }
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
        for (int h = 0; h < HEADS; h++) score[h] += __shfl_xor_sync(ALL_LANES, score[h], distance);
    }
}

// How many keys, and as many values, a lane loads before the first is used: as many as there are registers for.
template <class F>
constexpr int LOADS = sizeof(Piece<F>) > 16 ? 2 : 4;

// What is the same for all positions of a warp.
template <int HEADS>
struct Looked {
    const unsigned char *keys, *values;
    // Bytes between neighbouring positions, and whether this lane has elements of a key, and of a value.
    Index key_step, value_step;
    bool has_key, has_value;
    float query[HEADS][PIECE], slope[HEADS];
    float scale;
};

// Adds positions first + key, first + key + keys, ..., LOADS of them to each group of lanes. `bias` is that of position
// `chunk` + lane.
template <class F, int HEADS>
DEVICE void add_positions(const Looked<HEADS>& looked, const Stand& stand, Index chunk, int first, float bias, Gathered<HEADS>& gathered) {
    constexpr int COUNT = LOADS<F>;
    Piece<F> keys[COUNT], values[COUNT];
    float score[COUNT][HEADS];
    bool seen[COUNT];
    float biases[COUNT];
    for (int l = 0; l < COUNT; l++) {
        const int place = first + l * stand.keys + stand.key;
        biases[l] = __shfl_sync(ALL_LANES, bias, place);
        seen[l] = biases[l] != -INFINITY;
        keys[l] = Piece<F>{}, values[l] = Piece<F>{};
        if (seen[l] && looked.has_key) keys[l].load(looked.keys + (chunk + place) * looked.key_step, stand.piece);
        if (seen[l] && looked.has_value) values[l].load(looked.values + (chunk + place) * looked.value_step, stand.piece);
    }
    for (int l = 0; l < COUNT; l++) {
        float key[PIECE];
        keys[l].decode(key);
        products(looked.query, key, stand.lanes, score[l]);
        for (int h = 0; h < HEADS; h++) {
            score[l][h] = seen[l] ? score[l][h] * looked.scale + looked.slope[h] * biases[l] : -INFINITY;
        }
    }
    for (int h = 0; h < HEADS; h++) {
        float next = gathered.largest[h];
        for (int l = 0; l < COUNT; l++) next = fmaxf(next, score[l][h]);
        const float kept = expf(gathered.largest[h] - subtracted(next));
        gathered.largest[h] = next;
        gathered.total[h] *= kept;
        for (int i = 0; i < PIECE; i++) gathered.mixed[h][i] *= kept;
        for (int l = 0; l < COUNT; l++) {
            score[l][h] = expf(score[l][h] - subtracted(next));
            gathered.total[h] += score[l][h];
        }
    }
    for (int l = 0; l < COUNT; l++) {
        float value[PIECE];
        values[l].decode(value);
        for (int h = 0; h < HEADS; h++) {
            for (int i = 0; i < PIECE; i++) gathered.mixed[h][i] = fmaf(score[l][h], value[i], gathered.mixed[h][i]);
        }
    }
}

// All chunks of this warp: `number` of `count`, then every `count`th.
template <class F, int HEADS>
DEVICE void add_chunks(const Looked<HEADS>& looked, const Stand& stand, const MaskRow& mask, int positions, int number, int count,
                       Gathered<HEADS>& gathered) {
    const int lane = threadIdx.x % WARP;
    for (Index chunk = (Index)number * CHUNK; chunk < positions; chunk += (Index)count * CHUNK) {
        const float bias = chunk + lane < positions ? mask[chunk + lane] : -INFINITY;
        const unsigned seen = __ballot_sync(ALL_LANES, bias != -INFINITY);
        // At most half a chunk.
        const int step = LOADS<F> * stand.keys;
        for (int first = 0; first < CHUNK; first += step) {
            if ((seen >> first & ((1u << step) - 1)) != 0) add_positions<F>(looked, stand, chunk, first, bias, gathered);
        }
    }
}

// Puts the parts of a warp's groups of lanes together.
template <int HEADS>
DEVICE void join_lanes(const Stand& stand, Gathered<HEADS>& gathered) {
    for (int distance = stand.lanes; distance < WARP; distance *= 2) {
        for (int h = 0; h < HEADS; h++) {
            const float other = __shfl_xor_sync(ALL_LANES, gathered.largest[h], distance), next = fmaxf(gathered.largest[h], other);
            const float kept = expf(gathered.largest[h] - subtracted(next)), added = expf(other - subtracted(next));
            gathered.largest[h] = next;
            gathered.total[h] = gathered.total[h] * kept + __shfl_xor_sync(ALL_LANES, gathered.total[h], distance) * added;
            for (int i = 0; i < PIECE; i++) {
                gathered.mixed[h][i] = gathered.mixed[h][i] * kept + __shfl_xor_sync(ALL_LANES, gathered.mixed[h][i], distance) * added;
            }
        }
    }
}

// Parts of some rows side by side: of each a run of `width` elements, and behind all of them the largest scores and the
// totals.
struct Parts {
    float *mixed, *largest, *total;
    int width;
};

DEVICE Parts parts_at(float* first, Index rows, int width) {
    return Parts{first, first + rows * width, first + rows * width + rows, width};
}

// The weighed sum of `count` parts, `step` apart from `first` on, one after the other: element `d` of the mixture; and
// its total and largest score.
struct Joined {
    float largest, total, mixed;
};

DEVICE Joined join_parts(const Parts& parts, Index first, Index step, int count, int d) {
    Joined joined{-INFINITY, 0.0f, 0.0f};
    for (int i = 0; i < count; i++) joined.largest = fmaxf(joined.largest, parts.largest[first + i * step]);
    for (int i = 0; i < count; i++) {
        const Index row = first + i * step;
        const float total = parts.total[row], kept = expf(parts.largest[row] - subtracted(joined.largest));
        joined.total = fmaf(total, kept, joined.total);
        // Of a part that saw nothing no mixture is written.
        if (total != 0.0f) joined.mixed = fmaf(parts.mixed[row * parts.width + d], kept, joined.mixed);
    }
    return joined;
}

// Which share of the work a block has: the splits of one row of heads stand next to each other.
struct Share {
    int split, kv_head, token, batch;
    // The first head, and how many warps each have HEADS of those behind it; all others have other positions.
    int first_head, sets;
};

template <int HEADS>
DEVICE Share share_of_block(const Attention& attention, int splits) {
    const unsigned group = attention.group(), kv_heads = (unsigned)attention.k.sizes[2];
    Share share;
    share.sets = group > 2 * HEADS ? SPLIT_WARPS : group > HEADS ? 2 : 1;
    const unsigned together = share.sets * HEADS, chunks = (group + together - 1) / together;
    const unsigned row = blockIdx.x / splits, heads = row / chunks, token = heads / kv_heads;
    share.split = (int)(blockIdx.x % splits);
    share.kv_head = (int)(heads % kv_heads);
    share.first_head = (int)(share.kv_head * group + row % chunks * together);
    share.token = (int)(token % (unsigned)attention.tokens());
    share.batch = (int)(token / (unsigned)attention.tokens());
    return share;
}

// An element of the result, and its codes: lanes that come together have 32 elements of one block then.
DEVICE void write_joined(const Attention& attention, const Share& share, int head, int d, float total, float mixed, unsigned char* codes) {
    const View& y = attention.y;
    const float value = total == 0.0f ? 0.0f : mixed / total;
    const Index row = share.token * y.steps[1] + head * y.steps[2] + share.batch * y.steps[3];
    cells_to_write<float>(y)[row + d * y.steps[0]] = value;
    if (codes == nullptr) return;
    const Index block = (((Index)share.token * attention.heads() + head) * y.sizes[0] + d) / ACTIVATIONS;
    store_activation_of_warp(Activations{codes, elements(y) / ACTIVATIONS}, block, value);
}

// Where the parts of a head's splits begin.
DEVICE Index first_split(const Attention& attention, const Share& share, int head, int splits) {
    return (((Index)share.batch * attention.heads() + head) * attention.tokens() + share.token) * splits;
}

// Puts the parts of the block's warps together, which lie in `parts` by warps and heads: into y, or as parts of the
// splits.
template <int HEADS>
DEVICE void write_block(const Attention& attention, const Share& share, const Parts& parts, int splits, const Parts& split_parts,
                        unsigned char* codes) {
    const int last = share.kv_head * attention.group() + attention.group(), width = parts.width;
    for (int place = threadIdx.x; place < share.sets * HEADS * width; place += blockDim.x) {
        const int h = place / width, d = place % width, head = share.first_head + h;
        if (head >= last) break;
        const Joined joined = join_parts(parts, h, share.sets * HEADS, SPLIT_WARPS / share.sets, d);
        if (splits == 1) {
            write_joined(attention, share, head, d, joined.total, joined.mixed, codes);
            continue;
        }
        const Index row = first_split(attention, share, head, splits) + share.split;
        if (joined.total != 0.0f) split_parts.mixed[row * width + d] = joined.mixed;
        if (d == 0) {
            split_parts.largest[row] = joined.largest;
            split_parts.total[row] = joined.total;
        }
    }
}

// Elements of a mixture that a lane has at once, and the splits whose elements it asks for before it adds the first:
// few warps join, so that what they wait for is the way to memory.
constexpr int JOINED = 4, ASKED = 4;

// Elements begin + lane, begin + WARP + lane, ... of a split's mixture; zeros behind its end, and where the split saw
// nothing, of which none is written.
DEVICE void ask_for_split(const float* row, float total, int begin, int width, float (&own)[JOINED]) {
#pragma unroll
    for (int e = 0; e < JOINED; e++) {
        const int d = begin + e * WARP + (int)threadIdx.x % WARP;
        own[e] = total != 0.0f && d < width ? load_written(row + d) : 0.0f;
    }
}

// Puts the splits of a head together, by a warp: one split is added after the other.
DEVICE void join_splits(const Attention& attention, const Share& share, int head, const Parts& parts, int splits, unsigned char* codes) {
    const int first = (int)first_split(attention, share, head, splits), lane = threadIdx.x % WARP, width = parts.width;
    float largest = -INFINITY;
#pragma unroll 1
    for (int i = lane; i < splits; i += WARP) largest = fmaxf(largest, load_written(parts.largest + first + i));
    largest = warp_max(largest);
#pragma unroll 1
    for (int begin = 0; begin < width; begin += WARP * JOINED) {
        float total = 0.0f, mixed[JOINED] = {};
        for (int chunk = 0; chunk < splits; chunk += WARP) {
            const bool has = chunk + lane < splits;
            const float own_total = has ? load_written(parts.total + first + chunk + lane) : 0.0f;
            const float own_kept = has ? expf(load_written(parts.largest + first + chunk + lane) - subtracted(largest)) : 0.0f;
            const int count = min(WARP, splits - chunk);
#pragma unroll 1
            for (int i = 0; i < count; i += ASKED) {
                // Behind the last split totals are 0.
                float part[ASKED], element[ASKED][JOINED];
#pragma unroll
                for (int a = 0; a < ASKED; a++) {
                    part[a] = __shfl_sync(ALL_LANES, own_total, i + a);
                    ask_for_split(parts.mixed + (first + chunk + i + a) * width, part[a], begin, width, element[a]);
                }
#pragma unroll
                for (int a = 0; a < ASKED; a++) {
                    const float kept = __shfl_sync(ALL_LANES, own_kept, i + a);
                    total = fmaf(part[a], kept, total);
#pragma unroll
                    for (int e = 0; e < JOINED; e++) mixed[e] = part[a] != 0.0f ? fmaf(element[a][e], kept, mixed[e]) : mixed[e];
                }
            }
        }
#pragma unroll
        for (int e = 0; e < JOINED; e++) {
            const int d = begin + e * WARP + lane;
            if (d < width) write_joined(attention, share, head, d, total, mixed[e], codes);
        }
    }
}

// What a block leaves to the last one of its row: where parts go, and who has written them.
struct Splits {
    int count;
    float* parts;
    unsigned char* codes;
    // One for each row of blocks.
    unsigned* counters;
};

// What is done with the parts of a block's warps, by the last block of a row with those of all.
template <int HEADS>
DEVICE void finish_block(const Attention& attention, const Share& share, const Parts& parts, const Splits& splits) {
    const Parts split_parts = parts_at(splits.parts, elements(attention.y) / parts.width * splits.count, parts.width);
    write_block<HEADS>(attention, share, parts, splits.count, split_parts, splits.codes);
    if (splits.count == 1 || !is_last_block(splits.counters + blockIdx.x / splits.count, splits.count)) return;
    const int end = min(share.first_head + share.sets * HEADS, (share.kv_head + 1) * attention.group());
#pragma unroll 1
    for (int head = share.first_head + threadIdx.x / WARP; head < end; head += SPLIT_WARPS) {
        join_splits(attention, share, head, split_parts, splits.count, splits.codes);
    }
}

template <class F, int HEADS>
DEVICE void attend_split(const Attention& attention, const Splits& splits_of_row, int tile_tokens, Fault* fault) {
    wait_for_turn();
    const int splits = splits_of_row.count;
    DYNAMIC_SHARED(float, shared);
    const View &k = attention.k, &v = attention.v;
    const Share share = share_of_block<HEADS>(attention, splits);
    // Registers are for what is loaded: behind the barrier this is read again.
    __shared__ Share kept;
    if (threadIdx.x == 0) kept = share;
    // What is of one sequence goes through tiles.
    if (tile_tokens > 0 && is_of_one_sequence(attention, share.token / tile_tokens * tile_tokens, tile_tokens)) return;
    const Index sequence = sequence_of(attention, share.token, share.batch, fault);
    if (sequence < 0) return;
    const int size = (int)k.sizes[0], width = (int)v.sizes[0], lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    Stand stand{PIECE, 0, 0, 0};
    while (stand.lanes * PIECE < max(size, width)) stand.lanes *= 2;
    stand.key = lane / stand.lanes, stand.keys = WARP / stand.lanes, stand.piece = lane % stand.lanes;
    Looked<HEADS> looked;
    looked.keys = row_at<F>(k, share.kv_head * k.steps[2] + sequence * k.steps[3]).first;
    looked.values = row_at<F>(v, share.kv_head * v.steps[2] + sequence * v.steps[3]).first;
    looked.key_step = k.steps[1] / F::LEN * F::BYTES, looked.value_step = v.steps[1] / F::LEN * F::BYTES;
    looked.has_key = stand.piece * PIECE < size, looked.has_value = stand.piece * PIECE < width;
    looked.scale = attention.scale;
    const int set = warp % share.sets, first_head = share.first_head + set * HEADS;
    load_queries(attention, stand, share.token, share.batch, first_head, looked.query);
    Gathered<HEADS> gathered;
    for (int h = 0; h < HEADS; h++) {
        looked.slope[h] = attention.slope(min(first_head + h, attention.heads() - 1));
        gathered.largest[h] = -INFINITY, gathered.total[h] = 0.0f;
        for (int i = 0; i < PIECE; i++) gathered.mixed[h][i] = 0.0f;
    }
    const MaskRow mask = attention.biases(share.token, 0, share.batch, 1.0f);
    // Neighbouring chunks go to different blocks.
    const int number = warp / share.sets * splits + share.split, count = SPLIT_WARPS / share.sets * splits;
    add_chunks<F>(looked, stand, mask, attention.positions(), number, count, gathered);
    join_lanes(stand, gathered);
    const Parts parts = parts_at(shared, SPLIT_WARPS * HEADS, width);
    for (int h = 0; h < HEADS && stand.key == 0; h++) {
        const int row = warp * HEADS + h;
        for (int i = 0; i < PIECE && looked.has_value; i++) parts.mixed[row * width + stand.piece * PIECE + i] = gathered.mixed[h][i];
        if (stand.piece == 0) parts.largest[row] = gathered.largest[h], parts.total[row] = gathered.total[h];
    }
    __syncthreads();
    finish_block<HEADS>(attention, kept, parts, splits_of_row);
}

// Three blocks fit a processor.
#define ATTENTION_SPLIT(type, F, heads)                                                                                                      \
    LIMITED_KERNEL(168, attention_split_##type##_##heads, View q, View k, View v, View mask, int mask_type,                 \
                   View sequences, int has_sequences, View y, float scale, float max_bias, int splits, int tile_tokens, float* scratch,      \
                   unsigned char* codes, unsigned* counters, Fault* fault) {                                                                  \
        const Attention attention{q, k, v, mask, sequences, y, mask_type, has_sequences, scale, max_bias};                                    \
        attend_split<F, heads>(attention, Splits{splits, scratch, codes, counters}, tile_tokens, fault);                                      \
    }

ATTENTION_SPLIT(f32, Number<float>, 1)
ATTENTION_SPLIT(f32, Number<float>, 4)
ATTENTION_SPLIT(f16, Number<half>, 1)
ATTENTION_SPLIT(f16, Number<half>, 4)
ATTENTION_SPLIT(q8_0, Q8_0, 1)
ATTENTION_SPLIT(q8_0, Q8_0, 4)
