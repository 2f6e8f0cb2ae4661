// compute_80
// Attention for many tokens of one sequence, on an f16 cache, by tensor cores. Formulas at kv_attention.cu and flash_attn.cu, arguments in
// attention_rows.cuh.
//
//   a block    64 rows, a row being a token and one of the heads that share keys and values; a warp 16 of them
//   a tile     32 positions, whose keys and values are copied to shared memory while the tile before is computed with
//   scores     S = Q K^T                              m16n8k16, 16 rows of 8 positions each
//   weights    p = 2^15 exp(S - m), total += sum p    by rows, m the largest score so far
//   mixture    O = O exp(m before - m) + p V          m16n8k16, 16 rows of 8 elements each
//
// Queries and weights are f32 and enter as the sum of two f16: x = high + low keeps 22 bits, and products with f16 are exact. So that nothing
// overflows and low parts are not lost, a query is multiplied by a power of two that brings its largest element near 2^14, which goes off the
// scores again, and weights by 2^15, which goes off with their total. What of a query is more than 2^38 times smaller than its largest element is lost.
//
// Tensor cores add 16 products at a time to what they have, and cut off what does not fit. Low parts are summed by themselves and added once, and a
// tile's mixture is added to the ones before by a fused multiply-add: cut off are sums of D products, and of 32.
//
// Masks are taken without slopes, and their rows without gaps. Positions before the first that a row of the block sees, and behind the last, cost
// nothing. What lies between is read though a row may not see it: a value there that is not finite makes the row none either.
#include "attention_rows.cuh"
#include "ptx.cuh"

constexpr int TILE_WARPS = 4, TILE_ROWS = 16 * TILE_WARPS, TILE = 32;
// Positions in steps of 8 as scores have them, and in steps of 16 as the mixture takes them.
constexpr int SCORE_STEPS = TILE / 8, VALUE_STEPS = TILE / 16;

// Rows of SIZE numbers in shared memory, in pieces of eight whose order is another for each of eight rows: the same piece of these lies in
// different banks.
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
    if (row >= elements(mask) / positions) return;
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

// The queries of a warp's 16 rows, as the first operand of the product: high parts in registers, low ones in shared memory.
template <int SIZE>
struct Queries {
    unsigned high[SIZE / 16][4];
    half* low;
    // What products of rows g and g + 8 are multiplied with: the scale, less the power of two in their queries.
    float unit[2];
};

// 2^exponent, for exponents of normal numbers.
DEVICE float power_of_two(int exponent) {
    return __int_as_float((exponent + 127) << 23);
}

// The exponent of the power of two that brings a query's largest element near 2^14; none of numbers that are not finite.
DEVICE int raised_by(float largest) {
    const int exponent = (__float_as_int(largest) >> 23 & 255) - 127;
    return exponent == 128 ? 0 : min(14 - exponent, 126);
}

// Shared memory of a block: low parts of all queries, and keys and values of two tiles, where high parts and units are before the first.
template <int SIZE>
struct Shared {
    static constexpr int TILE_NUMBERS = 2 * TILE * SIZE;
    half* low;
    __device__ __forceinline__ half* high() const { return low + TILE_ROWS * SIZE; }
    __device__ __forceinline__ float* units() const { return reinterpret_cast<float*>(high() + TILE_ROWS * SIZE); }
    __device__ __forceinline__ Bounds* hull() const { return reinterpret_cast<Bounds*>(units() + TILE_ROWS); }
    // Keys of a tile, and behind them its values.
    __device__ __forceinline__ half* tile(int which) const { return high() + which * TILE_NUMBERS; }
};

// A warp stages the 16 rows that are its own, row by row, two elements a lane at a time; zeros where there is no row or none of its elements.
template <int SIZE>
DEVICE void stage_queries(const Attention& attention, const Tile& tile, const Shared<SIZE>& shared) {
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
DEVICE void load_rows(half* first, int step, unsigned (&rows)[4]) {
    const int lane = threadIdx.x % WARP;
    load_matrices_x4(rows, piece_at<SIZE>(first, (int)threadIdx.x / WARP * 16 + lane % 16, 2 * step + lane / 16));
}

template <int SIZE>
DEVICE void load_queries(const Shared<SIZE>& shared, Queries<SIZE>& queries) {
    for (int step = 0; step < SIZE / 16; step++) load_rows<SIZE>(shared.high(), step, queries.high[step]);
    queries.low = shared.low;
    for (int r = 0; r < 2; r++) queries.unit[r] = shared.units()[threadIdx.x / WARP * 16 + threadIdx.x % WARP / 4 + 8 * r];
}

// Where keys and values of a head lie, and which positions are looked at.
struct Source {
    const half *keys, *values;
    Index key_step, value_step;
    int size, width;
    Bounds bounds;
};

// Begins to copy a tile. What lies outside of the bounds or behind the end of a row is zero.
template <int SIZE>
DEVICE void copy_tile(const Source& source, int first, half* tile) {
    constexpr int PIECES = SIZE / 8;
#pragma unroll 1
    for (int place = threadIdx.x; place < TILE * PIECES; place += blockDim.x) {
        const int row = place / PIECES, piece = place % PIECES, element = 8 * piece, position = first + row;
        const bool there = position >= source.bounds.first && position < source.bounds.end;
        const half* const key = source.keys + position * source.key_step + element;
        const half* const value = source.values + position * source.value_step + element;
        copy_async_16(piece_at<SIZE>(tile, row, piece), key, there && element < source.size);
        copy_async_16(piece_at<SIZE>(tile + TILE * SIZE, row, piece), value, there && element < source.width);
    }
    copy_async_commit();
}

// Scores of a warp's 16 rows: for each 8 positions, those of rows g and g + 8 at positions 2 t and 2 t + 1, as d of mma_m16n8k16_f16.
typedef float Scores[SCORE_STEPS][4];

template <int SIZE>
DEVICE void multiply_keys(const Queries<SIZE>& queries, half* keys, Scores& scores) {
    const int lane = threadIdx.x % WARP;
    Scores low;
    for (int n = 0; n < SCORE_STEPS; n++) {
        for (int i = 0; i < 4; i++) scores[n][i] = low[n][i] = 0.0f;
    }
#pragma unroll
    for (int step = 0; step < SIZE / 16; step++) {
        unsigned rows[4];
        load_rows<SIZE>(queries.low, step, rows);
#pragma unroll
        for (int n = 0; n < SCORE_STEPS; n += 2) {
            // 8 positions: the first 8 elements, the next 8; then of the next 8 positions.
            unsigned tiles[4];
            load_matrices_x4(tiles, piece_at<SIZE>(keys, 8 * n + lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2));
            const unsigned first[2] = {tiles[0], tiles[1]}, second[2] = {tiles[2], tiles[3]};
            mma_m16n8k16_f16(scores[n], queries.high[step], first);
            mma_m16n8k16_f16(scores[n + 1], queries.high[step], second);
            mma_m16n8k16_f16(low[n], rows, first);
            mma_m16n8k16_f16(low[n + 1], rows, second);
        }
    }
    for (int n = 0; n < SCORE_STEPS; n++) {
        for (int i = 0; i < 4; i++) scores[n][i] += low[n][i];
    }
}

// What rows g and g + 8 of a warp have: the largest score, this lane's share of the total, and 8 elements of the mixture at a time.
template <int SIZE>
struct Rows {
    float largest[2], total[2];
    float mixed[SIZE / 8][4];
};

// Biases of this lane's scores in one row, `row` of which begins at the lane's first position in the tile; -infinity outside of `begin` and `end`.
template <class T>
DEVICE void load_biases_of_row(const T* row, int begin, int end, int r, Scores& biases) {
    for (int n = 0; n < SCORE_STEPS; n++) {
        for (int i = 0; i < 2; i++) {
            const int place = 8 * n + i;
            biases[n][2 * r + i] = place >= begin && place < end ? to_float(row[place]) : -INFINITY;
        }
    }
}

// Biases of this lane's scores in the tile from `first` on; -infinity outside of the bounds, and of all of a row that does not exist.
DEVICE void load_biases(const MaskRow (&masks)[2], const bool (&exists)[2], const Bounds& bounds, int first, Scores& biases) {
    const int own = first + threadIdx.x % 4 * 2, begin = bounds.first - own;
    for (int r = 0; r < 2; r++) {
        const int end = exists[r] ? bounds.end - own : -TILE;
        if (masks[r].type == MASK_F32) {
            load_biases_of_row(reinterpret_cast<const float*>(masks[r].first) + own, begin, end, r, biases);
        } else if (masks[r].type == MASK_F16) {
            load_biases_of_row(reinterpret_cast<const half*>(masks[r].first) + own, begin, end, r, biases);
        } else {
            for (int n = 0; n < SCORE_STEPS; n++) {
                for (int i = 0; i < 2; i++) biases[n][2 * r + i] = 8 * n + i >= begin && 8 * n + i < end ? 0.0f : -INFINITY;
            }
        }
    }
}

// Scores become weights, times 2^15; what rows have so far is multiplied by `kept`.
template <int SIZE>
DEVICE void weigh(const Queries<SIZE>& queries, const Scores& biases, Scores& scores, Rows<SIZE>& rows, float (&kept)[2]) {
    constexpr float RAISED = 32768.0f;
    for (int r = 0; r < 2; r++) {
        float next = rows.largest[r];
        for (int n = 0; n < SCORE_STEPS; n++) {
            for (int i = 2 * r; i < 2 * r + 2; i++) {
                const bool seen = biases[n][i] != -INFINITY;
                scores[n][i] = seen ? scores[n][i] * queries.unit[r] + biases[n][i] : -INFINITY;
                next = fmaxf(next, scores[n][i]);
            }
        }
        for (int distance = 2; distance > 0; distance /= 2) next = fmaxf(next, __shfl_xor_sync(ALL_LANES, next, distance));
        // Scores of -infinity only: their exponentials are 0.
        const float subtracted = next == -INFINITY ? 0.0f : next;
        kept[r] = expf(rows.largest[r] - subtracted);
        rows.largest[r] = next;
        float sum = 0.0f;
        for (int n = 0; n < SCORE_STEPS; n++) {
            for (int i = 2 * r; i < 2 * r + 2; i++) {
                scores[n][i] = expf(scores[n][i] - subtracted) * RAISED;
                sum += scores[n][i];
            }
        }
        rows.total[r] = fmaf(rows.total[r], kept[r], sum);
    }
}

// mixed = mixed kept + weights V.
template <int SIZE>
DEVICE void multiply_values(const Scores& weights, half* values, const float (&kept)[2], Rows<SIZE>& rows) {
    const int lane = threadIdx.x % WARP;
    unsigned high[VALUE_STEPS][4], low[VALUE_STEPS][4];
    for (int step = 0; step < VALUE_STEPS; step++) {
        for (int i = 0; i < 4; i++) {
            // Rows g and g + 8 of the first 8 positions, then of the last.
            const float(&pair)[4] = weights[2 * step + i / 2];
            const Split parts = split(pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
            high[step][i] = parts.high, low[step][i] = parts.low;
        }
    }
#pragma unroll
    for (int n = 0; n < SIZE / 8; n += 2) {
        float first_sum[4] = {0.0f, 0.0f, 0.0f, 0.0f}, second_sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        unsigned tiles[VALUE_STEPS][4];
        for (int step = 0; step < VALUE_STEPS; step++) {
            // 8 elements of the first 8 positions, of the next 8; then the next 8 elements.
            load_matrices_transposed_x4(tiles[step], piece_at<SIZE>(values, 16 * step + lane % 16, n + lane / 16));
        }
        for (int part = 0; part < 2; part++) {
            for (int step = 0; step < VALUE_STEPS; step++) {
                const unsigned first[2] = {tiles[step][0], tiles[step][1]}, second[2] = {tiles[step][2], tiles[step][3]};
                mma_m16n8k16_f16(first_sum, part == 0 ? low[step] : high[step], first);
                mma_m16n8k16_f16(second_sum, part == 0 ? low[step] : high[step], second);
            }
        }
        for (int i = 0; i < 4; i++) {
            rows.mixed[n][i] = fmaf(rows.mixed[n][i], kept[i / 2], first_sum[i]);
            rows.mixed[n + 1][i] = fmaf(rows.mixed[n + 1][i], kept[i / 2], second_sum[i]);
        }
    }
}

// Rows of y: the mixture over the total of all four lanes of a row.
template <int SIZE>
DEVICE void write_rows(const Attention& attention, const Tile& tile, const Rows<SIZE>& rows) {
    const View& y = attention.y;
    // Found again, for the loop before needs every register.
    const TileRow places[2] = {own_row(attention, tile, 0), own_row(attention, tile, 1)};
    for (int r = 0; r < 2; r++) {
        float total = rows.total[r];
        for (int distance = 2; distance > 0; distance /= 2) total += __shfl_xor_sync(ALL_LANES, total, distance);
        if (!places[r].exists) continue;
        float* const row = cells_to_write<float>(y) + places[r].token * y.steps[1] + places[r].head * y.steps[2] + tile.batch * y.steps[3];
        for (int n = 0; n < SIZE / 8; n++) {
            for (int i = 0; i < 2; i++) {
                const int d = 8 * n + threadIdx.x % 4 * 2 + i;
                if (d < y.sizes[0]) row[d * y.steps[0]] = total == 0.0f ? 0.0f : rows.mixed[n][2 * r + i] / total;
            }
        }
    }
}

// All tiles within the bounds; the next is on its way while one is computed with.
template <int SIZE>
DEVICE void attend_tiles(const Source& source, const MaskRow (&masks)[2], const bool (&exists)[2],
                         const Queries<SIZE>& queries, const Shared<SIZE>& shared, Rows<SIZE>& rows) {
    const int end = source.bounds.end;
    int first = source.bounds.first / TILE * TILE, which = 0;
    if (first < end) copy_tile<SIZE>(source, first, shared.tile(0));
    for (; first < end; first += TILE, which = 1 - which) {
        half* const now = shared.tile(which);
        if (first + TILE < end) copy_tile<SIZE>(source, first + TILE, shared.tile(1 - which));
        else copy_async_commit();
        Scores scores, biases;
        float kept[2];
        copy_async_wait<1>();
        __syncthreads();
        multiply_keys(queries, now, scores);
        load_biases(masks, exists, source.bounds, first, biases);
        weigh(queries, biases, scores, rows, kept);
        multiply_values(scores, now + TILE * SIZE, kept, rows);
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

template <int SIZE>
DEVICE void attend(const Attention& attention, int heads_together, const Bounds* bounds, Fault* fault) {
    DYNAMIC_SHARED(half, numbers);
    const Shared<SIZE> shared{numbers};
    const View &k = attention.k, &v = attention.v;
    const Tile tile = tile_of_block(attention, heads_together);
    if (!sequences_exist(attention, tile, fault) || !is_of_one_sequence(attention, tile.first_token, tile.tokens)) return;
    const Index sequence = sequence_of(attention, tile.first_token, tile.batch, fault);
    const Bounds hull = bounds_of_block(attention, tile, bounds, shared.hull());
    const Source source{cells<half>(k) + tile.kv_head * k.steps[2] + sequence * k.steps[3],
                        cells<half>(v) + tile.kv_head * v.steps[2] + sequence * v.steps[3],
                        k.steps[1], v.steps[1], (int)k.sizes[0], (int)v.sizes[0], hull};
    Queries<SIZE> queries;
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
    for (int n = 0; n < SIZE / 8; n++) {
        for (int i = 0; i < 4; i++) rows.mixed[n][i] = 0.0f;
    }
    attend_tiles(source, masks, exists, queries, shared, rows);
    write_rows(attention, tile_of_block(attention, heads_together), rows);
}

// Two blocks fit a processor.
#define ATTENTION_TILES(size)                                                                                                              \
    LIMITED_KERNEL(240, attention_tiles_##size, View q, View k, View v, View mask, int mask_type, View sequences, int has_sequences,       \
                   View y, float scale, int heads_together, const Bounds* bounds, Fault* fault) {                                          \
        const Attention attention{q, k, v, mask, sequences, y, mask_type, has_sequences, scale, 0.0f};                                     \
        attend<size>(attention, heads_together, bounds, fault);                                                                            \
    }

ATTENTION_TILES(64)
ATTENTION_TILES(128)
