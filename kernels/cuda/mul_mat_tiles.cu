// compute_80
// y = w x as in mul_mat.cu for many tokens, by tensor cores on integers: w [K, M, b2, b3] of 32 codes a block in planes
// (split_blocks.cuh), x [K, N, n2, n3] as quantize_q8_1 leaves it, y f32 [M, N, n2, n3]. With two matrices, f(gate x)
// (up x) as in mul_mat_gated.cu.
//
//   a block of threads   a tile as tiles.cuh has it
//   a step               2 blocks of 32 along K, in one of three stages of shared memory; two are on their way while
//                        one is multiplied
//
// The product of a tile with one block is exact in 32 bits; blocks are then added one after the other, by fmaf(d dx,
// sum(q c), .), and where there is a minimum m fmaf(m, dx sum(c), .). Rows, tokens and blocks beyond the last are zero.
#include "activations.cuh"
#include "row_products.cuh"
#include "tiles.cuh"

constexpr int STEP = 2, STAGES = 3;

// Distances in shared memory at which neither copies into it nor loads of fragments wait for each other's banks.
constexpr int ROW_PITCH = TILE_ROWS + 4, TOKEN_PITCH = TILE_TOKENS + 4;

// What is multiplied in a step: 16 bytes of each row and of each token beside those of the next one. `matrix.rs` of the
// device knows the size.
struct Stage {
    uint4 codes[STEP][ROW_PITCH];
    uint4 rest[STEP][ROW_PITCH];
    uint4 tokens[2][STEP][TOKEN_PITCH];
    // Scale and minimum of the weights' blocks, scale and sum of the activations'.
    float2 row_heads[STEP][TILE_ROWS];
    float2 token_heads[STEP][TILE_TOKENS];
};
static_assert(sizeof(Stage) * STAGES == 47616, "what the host asks for");

// A row and a token that a thread brings, a block of each step; none beyond the last.
struct Source {
    Planes row;
    const uint4* token_codes;
    const int2* token_heads;
    bool row_exists, token_exists;
};

// What a thread carries itself, past the registers' wait: heads, and fifth bits.
struct Carried {
    float2 row_head, token_head;
    unsigned bits;
};

// Thread 2 r + s brings row r of the tile in step s, and token r % 64, whose first codes the first half of threads
// bring.
DEVICE int own_row() { return threadIdx.x / STEP; }
DEVICE int own_step() { return threadIdx.x % STEP; }
DEVICE int own_token() { return threadIdx.x / STEP % TILE_TOKENS; }
DEVICE int own_half() { return threadIdx.x / STEP / TILE_TOKENS; }

template <class S>
DEVICE void copy_step(Stage& stage, const Source& source, unsigned b, unsigned blocks) {
    const bool row = source.row_exists && b < blocks, token = source.token_exists && b < blocks;
    const unsigned own = b < blocks ? b : 0;
    copy_async_16(&stage.codes[own_step()][own_row()], reinterpret_cast<const uint4*>(source.row.codes) + own, row);
    if (S::REST_BYTES == 16) copy_async_16(&stage.rest[own_step()][own_row()], reinterpret_cast<const uint4*>(source.row.rest) + own, row);
    copy_async_16(&stage.tokens[own_half()][own_step()][own_token()], source.token_codes + own, token);
}

template <class S>
DEVICE Carried carry_step(const Source& source, unsigned b, unsigned blocks) {
    Carried carried = {};
    if (b >= blocks) return carried;
    if (source.row_exists) {
        const typename S::Head head = load_head(reinterpret_cast<const typename S::Head*>(source.row.heads) + b);
        carried.row_head = make_float2(scale_of(head), minimum_of(head));
        if (S::REST_BYTES == 4) carried.bits = __ldg(reinterpret_cast<const unsigned*>(source.row.rest) + b);
    }
    if (source.token_exists && own_half() == 0) {
        const int2 words = __ldg(source.token_heads + b);
        const ActivationHead head{__int_as_float(words.x), words.y};
        carried.token_head = make_float2(head.scale, sum_of(head));
    }
    return carried;
}

template <class S>
DEVICE void put_down(Stage& stage, const Carried& carried) {
    stage.row_heads[own_step()][own_row()] = carried.row_head;
    if (S::REST_BYTES == 4) reinterpret_cast<unsigned*>(stage.rest[own_step()])[own_row()] = carried.bits;
    if (own_half() == 0) stage.token_heads[own_step()][own_token()] = carried.token_head;
}

// Rows g and g + 8 of 16, from `row` on, as mma takes them: g is lane / 4, t is lane % 4.
template <class S>
DEVICE void load_rows(const Stage& stage, int step, int row, int (&a)[4]) {
    const int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int own = row + g + 8 * h;
        unsigned rest = 0;
        if (S::REST_BYTES == 16) rest = word_of(stage.rest[step][own], t);
        if (S::REST_BYTES == 4) rest = reinterpret_cast<const unsigned*>(stage.rest[step])[own];
        const int2 pair = S::pair(word_of(stage.codes[step][own], t), rest, t);
        a[h] = pair.x, a[2 + h] = pair.y;
    }
}

// Adds the products of a tile with a block: rows g and g + 8, tokens 2 t and 2 t + 1.
template <class S>
DEVICE void add_tile(const int (&products)[4], const float2 (&rows)[2], const float4& tokens, float (&sums)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 row = rows[i / 2];
        const float scale = i % 2 == 0 ? tokens.x : tokens.z, sum = i % 2 == 0 ? tokens.y : tokens.w;
        sums[i] = fmaf(row.x * scale, (float)products[i], sums[i]);
        if (S::File::MINIMUM) sums[i] = fmaf(row.y, sum, sums[i]);
    }
}

// Multiplies what a stage holds, by a warp whose rows and tokens begin there.
template <class S>
DEVICE void multiply_stage(const Stage& stage, int row, int token, float (&sums)[2][4][4]) {
    const int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    // One after the other: both at once take more registers than two blocks of threads have.
#pragma unroll 1
    for (int step = 0; step < STEP; step++) {
        int a[2][4];
        float2 heads[2][2];
#pragma unroll
        for (int m = 0; m < 2; m++) {
            load_rows<S>(stage, step, row + 16 * m, a[m]);
            heads[m][0] = stage.row_heads[step][row + 16 * m + g];
            heads[m][1] = stage.row_heads[step][row + 16 * m + g + 8];
        }
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const int own = token + 8 * n + g;
            const int b[2] = {(int)word_of(stage.tokens[0][step][own], t), (int)word_of(stage.tokens[1][step][own], t)};
            const float4 of_tokens = *reinterpret_cast<const float4*>(&stage.token_heads[step][token + 8 * n + 2 * t]);
#pragma unroll
            for (int m = 0; m < 2; m++) {
                int products[4] = {};
                mma_m16n8k32_s8(products, a[m], b);
                add_tile<S>(products, heads[m], of_tokens, sums[m][n]);
            }
        }
    }
}

// The sums of this warp's part of a tile: `source` is what this thread brings of it.
template <class S>
DEVICE void multiply_tile(Stage* stages, const Source& source, unsigned blocks, float (&sums)[2][4][4]) {
    const unsigned steps = (blocks + STEP - 1) / STEP;
    for (unsigned s = 0; s < STAGES - 1; s++) {
        const unsigned b = s * STEP + own_step();
        copy_step<S>(stages[s], source, b, blocks);
        copy_async_commit();
        put_down<S>(stages[s], carry_step<S>(source, b, blocks));
    }
    for (unsigned s = 0; s < steps; s++) {
        // The copies of this step are there, and the stage of the step before is free.
        copy_async_wait<STAGES - 2>();
        __syncthreads();
        const unsigned next = s + STAGES - 1, b = next * STEP + own_step();
        Stage& target = stages[next % STAGES];
        const Carried carried = carry_step<S>(source, b, blocks);
        copy_step<S>(target, source, b, blocks);
        copy_async_commit();
        multiply_stage<S>(stages[s % STAGES], warp_row(), warp_token(), sums);
        put_down<S>(target, carried);
    }
}

// The planes of a row of a tile's matrix.
template <class S>
DEVICE Planes row_of(const View& w, const Planes& planes, const View& y, const Corner& corner, unsigned row) {
    return planes_at<S>(planes, matrix_distance(w, y, corner.i2, corner.i3) + row * w.steps[1]);
}

// What this thread brings, but for the row itself, whose number in its matrix is `row`.
DEVICE Source source_of(const Activations& x, const View& y, const Corner& corner, unsigned row, unsigned blocks) {
    const unsigned token = corner.token + own_token();
    Source source;
    source.row_exists = row < y.sizes[0], source.token_exists = token < y.sizes[1];
    const Index batch = y.sizes[1] * (corner.i2 + y.sizes[2] * corner.i3);
    const Index first = (batch + (source.token_exists ? token : 0)) * blocks;
    source.token_codes = reinterpret_cast<const uint4*>(x.planes) + (own_half() * x.blocks + first);
    source.token_heads = reinterpret_cast<const int2*>(x.planes + x.blocks * ACTIVATIONS) + first;
    return source;
}

template <class S>
DEVICE void multiply(const View& w, const Planes& planes, const Activations& x, const View& y) {
    DYNAMIC_SHARED(Stage, stages);
    const unsigned blocks = (unsigned)(w.sizes[0] / ACTIVATIONS);
    const Corner corner = corner_of<1>(y);
    const unsigned row = corner.row + row_in_tile<1>(own_row());
    Source source = source_of(x, y, corner, row, blocks);
    source.row = row_of<S>(w, planes, y, corner, source.row_exists ? row : 0);
    float sums[2][4][4] = {};
    multiply_tile<S>(stages, source, blocks, sums);
    write_tile<1>(y, corner, [&](int m, int n, int i) { return sums[m][n][i]; });
}

template <class S>
DEVICE void multiply_gated(const View& gate, const Planes& of_gate, const View& up, const Planes& of_up, const Activations& x, const View& y,
                           int function) {
    DYNAMIC_SHARED(Stage, stages);
    const unsigned blocks = (unsigned)(gate.sizes[0] / ACTIVATIONS);
    const Corner corner = corner_of<2>(y);
    const unsigned row = corner.row + row_in_tile<2>(own_row());
    Source source = source_of(x, y, corner, row, blocks);
    const unsigned own = source.row_exists ? row : 0;
    if (own_row() % 32 < 16) {
        source.row = row_of<S>(gate, of_gate, y, corner, own);
    } else {
        source.row = row_of<S>(up, of_up, y, corner, own);
    }
    float sums[2][4][4] = {};
    multiply_tile<S>(stages, source, blocks, sums);
    write_tile<2>(y, corner, [&](int, int n, int i) { return activated(function, sums[0][n][i]) * sums[1][n][i]; });
}

#define MUL_MAT_TILES(type, S)                                                                                                         \
    BOUNDED_KERNEL(256, 2, mul_mat_tiles_##type, View w, unsigned char* rest, unsigned char* heads, unsigned char* x, Index blocks,    \
                   View y) {                                                                                                           \
        multiply<S>(w, Planes{w.data, rest, heads}, Activations{x, blocks}, y);                                                        \
    }                                                                                                                                  \
    BOUNDED_KERNEL(256, 2, mul_mat_gated_tiles_##type, View gate, unsigned char* gate_rest, unsigned char* gate_heads, View up,        \
                   unsigned char* up_rest, unsigned char* up_heads, unsigned char* x, Index blocks, View y, int function) {            \
        const Planes of_gate{gate.data, gate_rest, gate_heads}, of_up{up.data, up_rest, up_heads};                                     \
        multiply_gated<S>(gate, of_gate, up, of_up, Activations{x, blocks}, y, function);                                              \
    }

FOR_EACH_SPLIT(MUL_MAT_TILES)
