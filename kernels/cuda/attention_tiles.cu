// compute_80
// Attention for many tokens of one sequence, on a cache of f16 or q8_0, by tensor cores. Formulas at kv_attention.cu
// and flash_attn.cu, arguments in attention_rows.cuh.
//
//   a block    64 rows, a row being a token and one of the heads that share keys and values; a warp 16 of them
//   a tile     32 positions, whose keys and values are brought to shared memory while the tile before is computed with
//   scores     S = Q K^T                              m16n8k16, 16 rows of 8 positions each
//   weights    p = 2^15 exp(S - m), total += sum p    by rows, m the largest score so far
//   mixture    O = O exp(m before - m) + p V          m16n8k16, 16 rows of 8 elements each
//
// Queries and weights are f32 and enter as the sum of two f16: x = high + low keeps 22 bits, and products with f16 are
// exact. So that nothing overflows and low parts are not lost, a query is multiplied by a power of two that brings its
// largest element near 2^14, which goes off the scores again, and weights by 2^15, which goes off with their total.
// What of a query is more than 2^38 times smaller than its largest element is lost.
//
// Tensor cores add 16 products at a time to what they have, and cut off what does not fit. Low parts are summed by
// themselves and added once, and a tile's mixture is added to the ones before by a fused multiply-add: cut off are sums
// of D products, and of a tile's positions.
//
// Codes of q8_0 enter as f16, which holds them exactly. Of keys, each 32 elements' products are multiplied by the
// block's scale when they are added to a score; of values, the weights of a tile are multiplied by the scales of each
// 32 elements before they are split, less a power of two that is the tile's largest scale, so that scales of any size
// lose nothing.
//
// Masks are taken without slopes, and their rows without gaps. Positions before the first that a row of the block sees,
// and behind the last, cost nothing. What lies between enters products with weight 0 though a row may not see it: rows
// whose result is not finite, of such a value or of one that they see, are computed once more as the plain kernels do,
// which multiply with nothing that is not to be seen.
#include "attention.cuh"
#include "attention_rows.cuh"
#include "ptx.cuh"

constexpr int TILE_WARPS = 4, TILE_ROWS = 16 * TILE_WARPS, TILE = 32, SCORE_STEPS = TILE / 8;
static_assert(TILE_WARPS * WARP == SEEN, "rows are computed once more by a block of as many threads");

// Elements that a scale of q8_0 is for.
constexpr int SCALE_LEN = Q8_0::LEN;

// A number for each of a warp's 16 rows and STEPS * 8 positions: of each 8 those of rows g and g + 8 at positions 2 t
// and 2 t + 1, as d of mma_m16n8k16_f16.
template <int STEPS>
struct Scores {
    float of[STEPS][4];
};

// Rows of SIZE numbers in shared memory, in pieces of eight whose order is another for each of eight rows: the same
// piece of these lies in different banks.
template <int SIZE>
DEVICE half* piece_at(half* first, int row, int piece) {
    return first + row * SIZE + (piece ^ row % 8) * 8;
}

// The first position that a row of the mask shows, and the one behind the last.
struct Bounds {
    int first, end;
};

// Bounds of each row of a mask, counted over all dimensions but the innermost: a warp each.
KERNEL(attention_bounds, View mask, int mask_type, Bounds* bounds) {
    const Index row = thread_number() / WARP;
    const int lane = threadIdx.x % WARP, positions = (int)mask.sizes[0];
    if (row >= mask.sizes[1] * mask.sizes[2] * mask.sizes[3]) return;
    const Index token = row % mask.sizes[1], head = row / mask.sizes[1] % mask.sizes[2], batch = row / mask.sizes[1] / mask.sizes[2];
    const MaskRow biases = mask_row(mask, mask_type, token, head, batch, 1.0f);
    int first = positions, end = 0;
    for (int position = lane; position < positions; position += WARP) {
        if (biases[position] == -INFINITY) continue;
        first = min(first, position), end = position + 1;
    }
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        first = min(first, __shfl_xor_sync(ALL_LANES, first, distance));
        end = max(end, __shfl_xor_sync(ALL_LANES, end, distance));
    }
    if (lane == 0) bounds[row] = Bounds{first, end};
}

// Two numbers as two registers of two f16 each: what is nearest, and what is left.
struct Split {
    unsigned high, low;
};

DEVICE unsigned pair_of(half low, half high) {
    return (unsigned)__half_as_ushort(high) << 16 | __half_as_ushort(low);
}

DEVICE Split split(float x, float y) {
    const half x_high = __float2half_rn(x), y_high = __float2half_rn(y);
    const half x_low = __float2half_rn(x - __half2float(x_high)), y_low = __float2half_rn(y - __half2float(y_high));
    return Split{pair_of(x_high, y_high), pair_of(x_low, y_low)};
}

// Which rows a block has.
struct Tile {
    // Heads of a token that are here together, and tokens.
    int heads, tokens;
    int first_token, first_head, kv_head, batch;
    // Heads that there are, of those that share keys and values, from the first on.
    int heads_here;
};

// Blocks of the last tokens, which see most, begin first.
DEVICE Tile tile_of_block(const Attention& attention, int heads_together) {
    const unsigned group = attention.group(), chunks = (group + heads_together - 1) / heads_together, kv_heads = (unsigned)attention.k.sizes[2];
    Tile tile;
    tile.heads = heads_together;
    tile.tokens = TILE_ROWS / heads_together;
    const unsigned tiles = (attention.tokens() + tile.tokens - 1) / tile.tokens, columns = kv_heads * chunks * (unsigned)attention.q.sizes[3];
    const unsigned column = blockIdx.x % columns;
    tile.first_token = (int)((tiles - 1 - blockIdx.x / columns) * tile.tokens);
    const int chunk = (int)(column % chunks);
    tile.kv_head = (int)(column / chunks % kv_heads);
    tile.batch = (int)(column / chunks / kv_heads);
    tile.first_head = tile.kv_head * (int)group + chunk * heads_together;
    tile.heads_here = min(heads_together, (int)group - chunk * heads_together);
    return tile;
}

// One row: its token and head, if there is such a row.
struct TileRow {
    int token, head;
    bool exists;
};

DEVICE TileRow tile_row(const Attention& attention, const Tile& tile, int row) {
    const int token = row / tile.heads, head = row % tile.heads;
    TileRow found{tile.first_token + token, tile.first_head + head, true};
    found.exists = token < tile.tokens && found.token < attention.tokens() && head < tile.heads_here;
    return found;
}

// Row g or g + 8 of this lane's warp.
DEVICE TileRow own_row(const Attention& attention, const Tile& tile, int which) {
    return tile_row(attention, tile, (int)(threadIdx.x / WARP * 16 + threadIdx.x % WARP / 4) + 8 * which);
}

// Bounds of all rows of the block together; `hull` is a place in shared memory.
DEVICE Bounds bounds_of_block(const Attention& attention, const Tile& tile, const Bounds* bounds, Bounds* hull) {
    if (bounds == nullptr) return Bounds{0, attention.positions()};
    if (threadIdx.x == 0) *hull = Bounds{attention.positions(), 0};
    __syncthreads();
    if (threadIdx.x < TILE_ROWS) {
        const TileRow row = tile_row(attention, tile, threadIdx.x);
        if (row.exists) {
            const View& mask = attention.mask;
            const Index plane = row.head % mask.sizes[2] + tile.batch % mask.sizes[3] * mask.sizes[2];
            const Bounds own = bounds[plane * mask.sizes[1] + row.token];
            atomicMin(&hull->first, own.first);
            atomicMax(&hull->end, own.end);
        }
    }
    __syncthreads();
    return *hull;
}

// The queries of a warp's 16 rows, as the first operand of the product.
template <class F, int SIZE>
struct Queries {
    // High parts in registers, low ones in shared memory.
    unsigned high[SIZE / 16][4];
    half* low;
    // What products of rows g and g + 8 are multiplied with: the scale, less the power of two in their queries.
    float unit[2];
};

// 2^exponent, for exponents of normal numbers.
DEVICE float power_of_two(int exponent) {
    return __int_as_float((exponent + 127) << 23);
}

// The exponent of the power of two that brings a query's largest element near 2^14; none of numbers that are not
// finite.
DEVICE int raised_by(float largest) {
    const int exponent = (__float_as_int(largest) >> 23 & 255) - 127;
    return exponent == 128 ? 0 : min(14 - exponent, 126);
}

// The exponent of the smallest power of two above a number; 0 of numbers that are not finite.
DEVICE int exponent_above(float number) {
    const int exponent = (__float_as_int(number) >> 23 & 255) - 126;
    return exponent == 129 ? 0 : max(exponent, -126);
}

// Shared memory of a block: low parts of all queries, keys and values of two tiles, where high parts and units are
// before the first, and their scales where they have some.
template <class F, int SIZE>
struct Shared {
    static constexpr int TILE_NUMBERS = 2 * TILE * SIZE;
    static constexpr int SCALES = SIZE / SCALE_LEN;
    half* low;
    __device__ __forceinline__ half* high() const { return low + TILE_ROWS * SIZE; }
    __device__ __forceinline__ float* units() const { return reinterpret_cast<float*>(high() + TILE_ROWS * SIZE); }
    __device__ __forceinline__ Bounds* hull() const { return reinterpret_cast<Bounds*>(units() + TILE_ROWS); }
    // Keys of a tile, and behind them its values.
    __device__ __forceinline__ half* tile(int which) const {
        return high() + which * TILE_NUMBERS;
    }
    // Scales of a tile's keys, those of each 32 elements behind each other, and behind them of its values.
    __device__ __forceinline__ float* scales(int which) const {
        return reinterpret_cast<float*>(tile(2)) + which * 2 * SCALES * TILE;
    }
};

// A warp stages the 16 rows that are its own, row by row, two elements a lane at a time; zeros where there is no row or
// none of its elements.
template <class F, int SIZE>
DEVICE void stage_queries(const Attention& attention, const Tile& tile, const Shared<F, SIZE>& shared) {
    constexpr int PAIRS = SIZE / 2 / WARP;
    const View& q = attention.q;
    const int lane = threadIdx.x % WARP, first_row = threadIdx.x / WARP * 16;
#pragma unroll 1
    for (int row = first_row; row < first_row + 16; row++) {
        const TileRow place = tile_row(attention, tile, row);
        const int size = place.exists ? (int)q.sizes[0] : 0;
        const float* const query = cells<float>(q) + (size > 0 ? place.token * q.steps[1] + place.head * q.steps[2] + tile.batch * q.steps[3] : 0);
        float x[PAIRS][2], largest = 0.0f;
        for (int pair = 0; pair < PAIRS; pair++) {
            for (int i = 0; i < 2; i++) {
                const int d = 2 * (pair * WARP + lane) + i;
                x[pair][i] = d < size ? query[d * q.steps[0]] : 0.0f;
                largest = fmaxf(largest, fabsf(x[pair][i]));
            }
        }
        const int exponent = raised_by(warp_max(largest));
        const float raise = power_of_two(exponent);
        if (lane == 0) shared.units()[row] = attention.scale * power_of_two(-exponent);
        for (int pair = 0; pair < PAIRS; pair++) {
            const Split parts = split(x[pair][0] * raise, x[pair][1] * raise);
            const int d = 2 * (pair * WARP + lane);
            *reinterpret_cast<unsigned*>(piece_at<SIZE>(shared.high(), row, d / 8) + d % 8) = parts.high;
            *reinterpret_cast<unsigned*>(piece_at<SIZE>(shared.low, row, d / 8) + d % 8) = parts.low;
        }
    }
    __syncwarp();
}

// 16 elements of the warp's rows, as the first operand: rows g and g + 8 of the first 8, then of the next 8.
template <int SIZE>
DEVICE void load_rows(half* first, int step, int thread, unsigned (&rows)[4]) {
    load_matrices_x4(rows, piece_at<SIZE>(first, thread / WARP * 16 + thread % 16, 2 * step + thread % WARP / 16));
}

template <class F, int SIZE>
DEVICE void load_queries(const Shared<F, SIZE>& shared, Queries<F, SIZE>& queries) {
    queries.low = shared.low;
    for (int step = 0; step < SIZE / 16; step++) load_rows<SIZE>(shared.high(), step, threadIdx.x, queries.high[step]);
    for (int r = 0; r < 2; r++) queries.unit[r] = shared.units()[threadIdx.x / WARP * 16 + threadIdx.x % WARP / 4 + 8 * r];
}

// Whose keys and values a block looks at, up to which position.
struct Shown {
    int kv_head, sequence, end;
};

// Where they lie, and how many bytes positions are from each other.
struct Source {
    const unsigned char *keys, *values;
    Index key_step, value_step;
    int size, width, end;
};

// Found for each tile again, which takes no registers between.
template <class F>
DEVICE Source source_of(const Attention& attention, const Shown& shown) {
    const View &k = attention.k, &v = attention.v;
    const int kv_head = anew(shown.kv_head), sequence = anew(shown.sequence);
    return Source{row_at<F>(k, kv_head * k.steps[2] + sequence * k.steps[3]).first, row_at<F>(v, kv_head * v.steps[2] + sequence * v.steps[3]).first,
                  k.steps[1] / F::LEN * F::BYTES, v.steps[1] / F::LEN * F::BYTES, (int)k.sizes[0], (int)v.sizes[0], shown.end};
}

// Begins to copy a tile. What lies behind the last position or the end of a row is zero.
template <int SIZE>
DEVICE void bring_tile(const Source& source, int first, const Shared<Number<half>, SIZE>& shared, int which) {
    constexpr int PIECES = SIZE / 8;
    half* const tile = shared.tile(which);
#pragma unroll 1
    for (int place = threadIdx.x; place < TILE * PIECES; place += SEEN) {
        const int row = place / PIECES, piece = place % PIECES, element = 8 * piece, position = first + row;
        const bool there = position < source.end;
        const unsigned char* const key = source.keys + position * source.key_step + 16 * piece;
        const unsigned char* const value = source.values + position * source.value_step + 16 * piece;
        copy_async_16(piece_at<SIZE>(tile, row, piece), key, there && element < source.size);
        copy_async_16(piece_at<SIZE>(tile + TILE * SIZE, row, piece), value, there && element < source.width);
    }
}

DEVICE half2 pair_at(unsigned word) {
    return __halves2half2(__ushort_as_half((unsigned short)word), __ushort_as_half((unsigned short)(word >> 16)));
}

// Four codes as f16: with the upper byte of 1024 they are 1152 more.
DEVICE uint2 halves_of(unsigned codes) {
    const unsigned bytes = codes ^ 0x80808080u;
    const half2 more = pair_at(0x64806480u);
    const half2 first = __hsub2(pair_at(__byte_perm(bytes, 0x64646464u, 0x4140)), more);
    const half2 second = __hsub2(pair_at(__byte_perm(bytes, 0x64646464u, 0x4342)), more);
    return make_uint2(pair_of(__low2half(first), __high2half(first)), pair_of(__low2half(second), __high2half(second)));
}

// Brings a piece of a row of q8_0, zeros where there is none: eight codes, and with the first of a block its scale.
template <int SIZE>
DEVICE void bring_codes(const unsigned char* row, bool there, int position, int piece, half* tile, float* scales) {
    const unsigned char* const block = row + piece / 4 * Q8_0::BYTES;
    uint2 first = make_uint2(0, 0), second = first;
    if (there) {
        first = halves_of((unsigned)Q8_0::codes(block, piece % 4 * 2));
        second = halves_of((unsigned)Q8_0::codes(block, piece % 4 * 2 + 1));
    }
    *reinterpret_cast<uint4*>(piece_at<SIZE>(tile, position, piece)) = make_uint4(first.x, first.y, second.x, second.y);
    if (piece % 4 == 0) scales[piece / 4 * TILE + position] = there ? Q8_0::scale(block) : 0.0f;
}

// The same of a tile of codes, which are there behind the next barrier. Loads of two pieces of keys and two of values
// are under way at a time.
template <int SIZE>
DEVICE void bring_tile(const Source& source, int first, const Shared<Q8_0, SIZE>& shared, int which) {
    constexpr int PIECES = SIZE / 8, SCALES = Shared<Q8_0, SIZE>::SCALES;
    half* const tile = shared.tile(which);
    float* const scales = shared.scales(which);
#pragma unroll 2
    for (int place = threadIdx.x; place < TILE * PIECES; place += SEEN) {
        const int row = place / PIECES, piece = place % PIECES, element = 8 * piece, position = first + row;
        const bool there = position < source.end;
        bring_codes<SIZE>(source.keys + position * source.key_step, there && element < source.size, row, piece, tile, scales);
        bring_codes<SIZE>(source.values + position * source.value_step, there && element < source.width, row, piece, tile + TILE * SIZE,
                          scales + SCALES * TILE);
    }
}

// 16 elements of 16 positions, as the second operand: of the first 8 positions the first 8 elements and the next 8,
// then of the next 8 positions.
template <int SIZE>
DEVICE void load_keys(half* keys, int step, int n, int lane, unsigned (&first)[2], unsigned (&second)[2]) {
    unsigned tiles[4];
    load_matrices_x4(tiles, piece_at<SIZE>(keys, 8 * n + lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2));
    first[0] = tiles[0], first[1] = tiles[1], second[0] = tiles[2], second[1] = tiles[3];
}

// Adds the products of 16 elements: of high and of low parts, each to sums of its own or both to the same. `thread` is
// the number of this one.
template <class F, int SIZE, int STEPS>
DEVICE void multiply_step(const Queries<F, SIZE>& queries, half* keys, int step, int thread, Scores<STEPS>& high_sums, Scores<STEPS>& low_sums) {
    unsigned low[4];
    load_rows<SIZE>(queries.low, step, thread, low);
#pragma unroll
    for (int n = 0; n < STEPS; n += 2) {
        unsigned first[2], second[2];
        load_keys<SIZE>(keys, step, n, thread % WARP, first, second);
        mma_m16n8k16_f16(low_sums.of[n], low, first);
        mma_m16n8k16_f16(low_sums.of[n + 1], low, second);
        mma_m16n8k16_f16(high_sums.of[n], queries.high[step], first);
        mma_m16n8k16_f16(high_sums.of[n + 1], queries.high[step], second);
    }
}

template <int SIZE, int STEPS>
DEVICE void multiply_keys(const Queries<Number<half>, SIZE>& queries, const Shared<Number<half>, SIZE>& shared, int which, Scores<STEPS>& scores) {
    const int thread = anew(threadIdx.x);
    scores = Scores<STEPS>{};
    Scores<STEPS> low = {};
#pragma unroll
    for (int step = 0; step < SIZE / 16; step++) multiply_step(queries, shared.tile(which), step, thread, scores, low);
    for (int n = 0; n < STEPS; n++) {
        for (int i = 0; i < 4; i++) scores.of[n][i] += low.of[n][i];
    }
}

template <int SIZE, int STEPS>
DEVICE void multiply_keys(const Queries<Q8_0, SIZE>& queries, const Shared<Q8_0, SIZE>& shared, int which, Scores<STEPS>& scores) {
    const int thread = anew(threadIdx.x);
    const float* const scales = shared.scales(which) + thread % 4 * 2;
    scores = Scores<STEPS>{};
#pragma unroll
    for (int block = 0; block < SIZE / SCALE_LEN; block++) {
        Scores<STEPS> products = {};
        for (int step = 2 * block; step < 2 * block + 2; step++) multiply_step(queries, shared.tile(which), step, thread, products, products);
        for (int n = 0; n < STEPS; n++) {
            const float2 scale = *reinterpret_cast<const float2*>(scales + block * TILE + 8 * n);
            for (int i = 0; i < 4; i++) scores.of[n][i] = fmaf(i % 2 == 0 ? scale.x : scale.y, products.of[n][i], scores.of[n][i]);
        }
    }
}

// What rows g and g + 8 of a warp have: the largest score, this lane's share of the total, and 8 elements of the
// mixture at a time.
template <int SIZE>
struct Rows {
    float largest[2], total[2];
    float mixed[SIZE / 8][4];
};

// Biases of this lane's scores in one row, `row` of which begins at the lane's first position in the tile; -infinity
// from `end` on.
template <class T, int STEPS>
DEVICE void load_biases_of_row(const T* row, int end, int r, Scores<STEPS>& biases) {
    for (int n = 0; n < STEPS; n++) {
        for (int i = 0; i < 2; i++) biases.of[n][2 * r + i] = 8 * n + i < end ? to_float(row[8 * n + i]) : -INFINITY;
    }
}

// Biases of this lane's scores in the tile from `first` on; -infinity from `last` on, and of all of a row that does not
// exist.
template <int STEPS>
DEVICE void load_biases(const MaskRow (&masks)[2], const bool (&exists)[2], int last, int first, Scores<STEPS>& biases) {
    const int own = first + threadIdx.x % 4 * 2;
    for (int r = 0; r < 2; r++) {
        const int end = exists[r] ? last - own : -8 * STEPS;
        if (masks[r].type == MASK_F32) {
            load_biases_of_row(reinterpret_cast<const float*>(masks[r].first) + own, end, r, biases);
        } else if (masks[r].type == MASK_F16) {
            load_biases_of_row(reinterpret_cast<const half*>(masks[r].first) + own, end, r, biases);
        } else {
            for (int n = 0; n < STEPS; n++) {
                for (int i = 0; i < 2; i++) biases.of[n][2 * r + i] = 8 * n + i < end ? 0.0f : -INFINITY;
            }
        }
    }
}

// Scores become weights, times 2^15; what rows have so far is multiplied by `kept`.
template <int SIZE, int STEPS>
DEVICE void weigh(const float (&unit)[2], const Scores<STEPS>& biases, Scores<STEPS>& scores, Rows<SIZE>& rows, float (&kept)[2]) {
    constexpr float RAISED = 32768.0f;
    for (int r = 0; r < 2; r++) {
        float next = rows.largest[r];
        for (int n = 0; n < STEPS; n++) {
            for (int i = 2 * r; i < 2 * r + 2; i++) {
                const bool seen = biases.of[n][i] != -INFINITY;
                scores.of[n][i] = seen ? scores.of[n][i] * unit[r] + biases.of[n][i] : -INFINITY;
                next = fmaxf(next, scores.of[n][i]);
            }
        }
        for (int distance = 2; distance > 0; distance /= 2) next = fmaxf(next, __shfl_xor_sync(ALL_LANES, next, distance));
        // Scores of -infinity only: their exponentials are 0.
        const float subtracted = next == -INFINITY ? 0.0f : next;
        kept[r] = expf(rows.largest[r] - subtracted);
        rows.largest[r] = next;
        float sum = 0.0f;
        for (int n = 0; n < STEPS; n++) {
            for (int i = 2 * r; i < 2 * r + 2; i++) {
                scores.of[n][i] = expf(scores.of[n][i] - subtracted) * RAISED;
                sum += scores.of[n][i];
            }
        }
        rows.total[r] = fmaf(rows.total[r], kept[r], sum);
    }
}

// Weights as the first operand: rows g and g + 8 of the first 8 positions, then of the last, for each 16.
template <int STEPS>
struct Weights {
    unsigned high[STEPS][4], low[STEPS][4];
};

// Weights, each times what `factor` gives for a step and a place of it as numbers of Scores are.
template <int STEPS, class Factor>
DEVICE void split_weights(const Scores<2 * STEPS>& weights, Factor factor, Weights<STEPS>& split_ones) {
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < 4; i++) {
            const int n = 2 * step + i / 2, place = i % 2 * 2;
            const Split parts = split(weights.of[n][place] * factor(n, 0), weights.of[n][place + 1] * factor(n, 1));
            split_ones.high[step][i] = parts.high, split_ones.low[step][i] = parts.low;
        }
    }
}

// mixed = mixed kept + weights V unit, of the 16 elements from 8 n on.
template <int SIZE, int STEPS>
DEVICE void mix(const Weights<STEPS>& weights, half* values, int n, int lane, float unit, const float (&kept)[2], Rows<SIZE>& rows) {
    float first_sum[4] = {0.0f, 0.0f, 0.0f, 0.0f}, second_sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    unsigned tiles[STEPS][4];
    for (int step = 0; step < STEPS; step++) {
        // 8 elements of the first 8 positions, of the next 8; then the next 8 elements.
        load_matrices_transposed_x4(tiles[step], piece_at<SIZE>(values, 16 * step + lane % 16, n + lane / 16));
    }
    for (int part = 0; part < 2; part++) {
        for (int step = 0; step < STEPS; step++) {
            const unsigned first[2] = {tiles[step][0], tiles[step][1]}, second[2] = {tiles[step][2], tiles[step][3]};
            mma_m16n8k16_f16(first_sum, part == 0 ? weights.low[step] : weights.high[step], first);
            mma_m16n8k16_f16(second_sum, part == 0 ? weights.low[step] : weights.high[step], second);
        }
    }
    for (int i = 0; i < 4; i++) {
        rows.mixed[n][i] = fmaf(rows.mixed[n][i], kept[i / 2], first_sum[i] * unit);
        rows.mixed[n + 1][i] = fmaf(rows.mixed[n + 1][i], kept[i / 2], second_sum[i] * unit);
    }
}

template <int SIZE, int STEPS>
DEVICE void multiply_values(const Scores<STEPS>& weights, const Shared<Number<half>, SIZE>& shared, int which, const float (&kept)[2],
                            Rows<SIZE>& rows) {
    half* const values = shared.tile(which) + 8 * STEPS * SIZE;
    const int lane = anew(threadIdx.x % WARP);
    Weights<STEPS / 2> parts;
    split_weights(weights, [](int, int) { return 1.0f; }, parts);
#pragma unroll
    for (int n = 0; n < SIZE / 8; n += 2) {
        __syncwarp();
        mix(parts, values, n, lane, 1.0f, kept, rows);
    }
}

template <int SIZE, int STEPS>
DEVICE void multiply_values(const Scores<STEPS>& weights, const Shared<Q8_0, SIZE>& shared, int which, const float (&kept)[2], Rows<SIZE>& rows) {
    half* const values = shared.tile(which) + 8 * STEPS * SIZE;
    const int lane = anew(threadIdx.x % WARP);
    const float* const scales = shared.scales(which) + SIZE / SCALE_LEN * 8 * STEPS + lane % 4 * 2;
#pragma unroll
    for (int block = 0; block < SIZE / SCALE_LEN; block++) {
        float scale[STEPS][2], largest = 0.0f;
        for (int n = 0; n < STEPS; n++) {
            const float2 two = *reinterpret_cast<const float2*>(scales + block * 8 * STEPS + 8 * n);
            scale[n][0] = two.x, scale[n][1] = two.y;
            largest = fmaxf(largest, fmaxf(fabsf(two.x), fabsf(two.y)));
        }
        for (int distance = 2; distance > 0; distance /= 2) largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, distance));
        // Less than 1, so that a weight times it is no more than the weight.
        const int exponent = exponent_above(largest);
        const float lower = power_of_two(-exponent);
        Weights<STEPS / 2> parts;
        split_weights(weights, [&](int n, int i) { return scale[n][i] * lower; }, parts);
#pragma unroll
        for (int n = 4 * block; n < 4 * block + 4; n += 2) __syncwarp(), mix(parts, values, n, lane, power_of_two(exponent), kept, rows);
    }
}

// Rows of y: the mixture over the total of all four lanes of a row. Gives which of this warp's rows are not finite: of
// rows g in the first of two words, of rows g + 8 in the second, in bits 4 g to 4 g + 3.
template <int SIZE>
DEVICE uint2 write_rows(const Attention& attention, const Tile& tile, const Rows<SIZE>& rows) {
    const View& y = attention.y;
    // Found again, for the loop before needs every register.
    const TileRow places[2] = {own_row(attention, tile, 0), own_row(attention, tile, 1)};
    float total[2], inverse[2];
    float* first[2];
    bool finite[2] = {true, true};
    for (int r = 0; r < 2; r++) {
        total[r] = rows.total[r];
        for (int distance = 2; distance > 0; distance /= 2) total[r] += __shfl_xor_sync(ALL_LANES, total[r], distance);
        inverse[r] = 1.0f / total[r];
        const Index place = places[r].token * y.steps[1] + places[r].head * y.steps[2] + tile.batch * y.steps[3];
        first[r] = cells_to_write<float>(y) + (places[r].exists ? place : 0);
    }
#pragma unroll
    for (int n = 0; n < SIZE / 8; n++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int d = 8 * n + threadIdx.x % 4 * 2 + i;
            for (int r = 0; r < 2; r++) {
                if (!places[r].exists || d >= y.sizes[0]) continue;
                const float mixed = total[r] == 0.0f ? 0.0f : rows.mixed[n][2 * r + i] * inverse[r];
                finite[r] = finite[r] && fabsf(mixed) < INFINITY;
                first[r][d * y.steps[0]] = mixed;
            }
        }
    }
    return make_uint2(__ballot_sync(ALL_LANES, !finite[0]), __ballot_sync(ALL_LANES, !finite[1]));
}

// Apart, so that the kernel need not keep registers for it.
template <class F>
static __device__ __noinline__ void attend_alone(Head<Number<float>, F, F> head, float* shared, float* y, Index step) {
    attend(head, shared, y, step);
}

// Computes a row as the plain kernels do; all threads of the block take part.
template <class F>
DEVICE void attend_again(const Attention& attention, const Tile& tile, Index sequence, int row, float* shared) {
    const View &q = attention.q, &k = attention.k, &v = attention.v, &y = attention.y;
    const TileRow place = tile_row(attention, tile, row);
    const Head<Number<float>, F, F> head{
        row_at<Number<float>>(q, place.token * q.steps[1] + place.head * q.steps[2] + tile.batch * q.steps[3]),
        row_at<F>(k, tile.kv_head * k.steps[2] + sequence * k.steps[3]),
        row_at<F>(v, tile.kv_head * v.steps[2] + sequence * v.steps[3]),
        k.steps[1], v.steps[1], q.sizes[0], v.sizes[0], k.sizes[1],
        attention.biases(place.token, place.head, tile.batch, 1.0f), attention.scale, 0.0f};
    float* const target = cells_to_write<float>(y) + place.token * y.steps[1] + place.head * y.steps[2] + tile.batch * y.steps[3];
    attend_alone<F>(head, shared, target, y.steps[0]);
    __syncthreads();
}

// The rows of the block that are not finite, once more; `shared` is free.
template <class F>
DEVICE void mend_rows(const Attention& attention, const Tile& tile, Index sequence, const uint2& broken, float* shared) {
    if (__syncthreads_or(broken.x != 0 || broken.y != 0) == 0) return;
    uint2* const of_warps = reinterpret_cast<uint2*>(shared);
    if (threadIdx.x % WARP == 0) of_warps[threadIdx.x / WARP] = broken;
    __syncthreads();
#pragma unroll 1
    for (int row = 0; row < TILE_ROWS; row++) {
        const uint2 words = of_warps[row / 16];
        if (((row % 16 < 8 ? words.x : words.y) >> row % 8 * 4 & 15) != 0) {
            attend_again<F>(attention, tile, sequence, row, shared + TILE_WARPS * sizeof(uint2) / sizeof(float));
        }
    }
}

// All tiles from that of position `begin` on; the next is brought while one is computed with.
template <class F, int SIZE>
DEVICE void attend_tiles(const Attention& attention, const Shown& shown, int begin, const MaskRow (&masks)[2], const bool (&exists)[2],
                         const Queries<F, SIZE>& queries, const Shared<F, SIZE>& shared, Rows<SIZE>& rows) {
    const int end = shown.end;
    int first = begin / TILE * TILE, which = 0;
    if (first < end) bring_tile<SIZE>(source_of<F>(attention, shown), first, shared, 0);
    copy_async_commit();
    for (; first < end; first += TILE, which = 1 - which) {
        if (first + TILE < end) bring_tile<SIZE>(source_of<F>(attention, shown), first + TILE, shared, 1 - which);
        copy_async_commit();
        Scores<SCORE_STEPS> scores, biases;
        float kept[2];
        copy_async_wait<1>();
        __syncthreads();
        multiply_keys(queries, shared, which, scores);
        load_biases(masks, exists, end, first, biases);
        weigh(queries.unit, biases, scores, rows, kept);
        multiply_values(scores, shared, which, kept, rows);
        __syncthreads();
    }
}

// Tells of a sequence that is not there; whether all are.
DEVICE bool sequences_exist(const Attention& attention, const Tile& tile, Fault* fault) {
    bool exist = true;
    const int token = tile.first_token + (int)threadIdx.x;
    if ((int)threadIdx.x < tile.tokens && token < attention.tokens()) exist = sequence_of(attention, token, tile.batch, fault) >= 0;
    return __syncthreads_and(exist) != 0;
}

template <class F, int SIZE>
DEVICE void attend_together(const Attention& attention, int heads_together, const Bounds* bounds, Fault* fault) {
    DYNAMIC_SHARED(half, numbers);
    const Shared<F, SIZE> shared{numbers};
    const Tile tile = tile_of_block(attention, heads_together);
    if (!sequences_exist(attention, tile, fault) || !is_of_one_sequence(attention, tile.first_token, tile.tokens)) return;
    const Index sequence = sequence_of(attention, tile.first_token, tile.batch, fault);
    const Bounds hull = bounds_of_block(attention, tile, bounds, shared.hull());
    Queries<F, SIZE> queries;
    stage_queries(attention, tile, shared);
    load_queries(shared, queries);
    __syncthreads();
    const TileRow places[2] = {own_row(attention, tile, 0), own_row(attention, tile, 1)};
    const bool exists[2] = {places[0].exists, places[1].exists};
    MaskRow masks[2];
    Rows<SIZE> rows;
    for (int r = 0; r < 2; r++) {
        masks[r] = attention.biases(places[r].token, places[r].head, tile.batch, 1.0f);
        rows.largest[r] = -INFINITY, rows.total[r] = 0.0f;
    }
#pragma unroll
    for (int n = 0; n < SIZE / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) rows.mixed[n][i] = 0.0f;
    }
    attend_tiles(attention, Shown{tile.kv_head, (int)sequence, hull.end}, hull.first, masks, exists, queries, shared, rows);
    const Tile same = tile_of_block(attention, anew(heads_together));
    const uint2 broken = write_rows(attention, same, rows);
    mend_rows<F>(attention, same, sequence_of(attention, same.first_token, same.batch, fault), broken, reinterpret_cast<float*>(numbers));
}

// Two blocks fit a processor.
#define ATTENTION_TILES(type, F, size)                                                                                                     \
    LIMITED_KERNEL(255, attention_tiles_##type##_##size, View q, View k, View v, View mask, int mask_type,                               \
                   View sequences, int has_sequences, View y, float scale, int heads_together, const Bounds* bounds, Fault* fault) {       \
        const Attention attention{q, k, v, mask, sequences, y, mask_type, has_sequences, scale, 0.0f};                                     \
        attend_together<F, size>(attention, heads_together, bounds, fault);                                                                \
    }

ATTENTION_TILES(f16, Number<half>, 64)
ATTENTION_TILES(f16, Number<half>, 128)
ATTENTION_TILES(q8_0, Q8_0, 64)
ATTENTION_TILES(q8_0, Q8_0, 128)
