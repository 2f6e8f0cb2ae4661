// A selective state space model, token by token; d = softplus(dt[h, t, s]), g = h groups / heads:
//
//   H[n, i, h] <- H[n, i, h] exp(d A[n, h]) + d x[i, h, t, s] B[n, g, t, s]        H starts as states[:, :, :, ids[s]]
//   y[i, h, t, s] = sum_n C[n, g, t, s] H[n, i, h]
//
//   states  f32 [state, size, heads, slots]          A     f32, f16 or bf16 [state, heads] or [1, heads]
//   x       f32 [size, heads, tokens, sequences]     B, C  f32 [state, groups, tokens, sequences]
//   dt      f32 [heads, tokens, sequences]           ids   i32 [sequences]                           all of any strides
//   y       f32 without gaps: the results, and behind them the last states [state, size, heads, sequences]
//
// A warp for each channel (i, h, s): lane l has the elements n = l mod 32 of the state, which it keeps where the last
// one goes. Sums over the state are f32, in each lane one after the other, then lanes in pairs. A kernel's last word is
// the type of A. A state outside of the slots is told and not used.
#include "activations.cuh"
#include "elements.cuh"

struct Scan {
    View states;
    View x;
    View dt;
    View a;
    View b;
    View c;
    View ids;
    View y;
};

template <class A>
DEVICE void scan(const Scan& all, Fault* fault) {
    const Index state = all.states.sizes[0], size = all.states.sizes[1], heads = all.states.sizes[2], width = size * heads;
    const Index tokens = all.x.sizes[2], channel = thread_number() / WARP, sequence = channel / width;
    if (sequence >= all.x.sizes[3]) return;
    const Index slot = cells<int>(all.ids)[sequence * all.ids.steps[0]];
    if (!lies_within(slot, all.states.sizes[3], fault)) return;
    const int lane = threadIdx.x % WARP;
    const Index place = channel % width, i = place % size, head = place / size, group = head * all.b.sizes[1] / heads;
    float* const result = cells_to_write<float>(all.y) + sequence * tokens * width + place;
    float* const held = cells_to_write<float>(all.y) + elements(all.x) + channel * state;
    const float* const first = cells<float>(all.states) + distance(all.states, {{0, i, head, slot}});
    for (Index n = lane; n < state; n += WARP) held[n] = first[n * all.states.steps[0]];
    const A* const a = cells<A>(all.a) + head * all.a.steps[1];
    const Index a_step = all.a.sizes[0] == 1 ? 0 : all.a.steps[0];
    for (Index token = 0; token < tokens; token++) {
        const float delta = softplus(cells<float>(all.dt)[distance(all.dt, {{head, token, sequence, 0}})]);
        const float input = delta * cells<float>(all.x)[distance(all.x, {{i, head, token, sequence}})];
        const float* const b = cells<float>(all.b) + distance(all.b, {{0, group, token, sequence}});
        const float* const c = cells<float>(all.c) + distance(all.c, {{0, group, token, sequence}});
        float sum = 0.0f;
        for (Index n = lane; n < state; n += WARP) {
            held[n] = fmaf(held[n], expf(delta * to_float(a[n * a_step])), input * b[n * all.b.steps[0]]);
            sum = fmaf(c[n * all.c.steps[0]], held[n], sum);
        }
        sum = warp_sum(sum);
        if (lane == 0) result[token * width] = sum;
    }
}

#define SSM_SCAN(A, suffix)                                                                                                 \
    KERNEL(ssm_scan_##suffix, View states, View x, View dt, View a, View b, View c, View ids, View y, Fault* fault) {       \
        scan<A>({states, x, dt, a, b, c, ids, y}, fault);                                                                   \
    }

SSM_SCAN(float, f32)
SSM_SCAN(half, f16)
SSM_SCAN(Bf16, bf16)
