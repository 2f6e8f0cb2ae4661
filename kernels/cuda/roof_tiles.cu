// compute_80
// Products by matrix units, in registers: what a card can multiply at most. A warp has several tiles of sums that do
// not wait for each other; roof.cu.
#include "ptx.cuh"
#include "roof.cuh"

KERNEL(roof_tiles_s8, int rounds, int codes, int* found) {
    int sums[CHAINS][4] = {};
    const int a[4] = {codes, codes + 1, codes + 2, codes + 3}, b[2] = {(int)threadIdx.x, codes};
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < CHAINS; i++) mma_m16n8k32_s8(sums[i], a, b);
    }
    int sum = 0;
    for (int i = 0; i < CHAINS; i++) sum ^= sums[i][0] ^ sums[i][1] ^ sums[i][2] ^ sums[i][3];
    if (sum == NEVER) *found = sum;
}

KERNEL(roof_tiles_f16, int rounds, int pair, int* found) {
    float sums[CHAINS][4] = {};
    const unsigned a[4] = {(unsigned)pair, (unsigned)pair, (unsigned)pair, (unsigned)pair}, b[2] = {(unsigned)pair, (unsigned)pair};
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < CHAINS; i++) mma_m16n8k16_f16(sums[i], a, b);
    }
    float sum = 0.0f;
    for (int i = 0; i < CHAINS; i++) sum += sums[i][0] + sums[i][1] + sums[i][2] + sums[i][3];
    if (sum == (float)NEVER) *found = 1;
}
