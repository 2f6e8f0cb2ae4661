// Instructions that CUDA C++ has no function for. Each has a body for cards that have it, one for the simulator
// (sim/ptx.h), and for older cards either plain code or a trap: kernels that call those are compiled for cards that
// have the instruction.
//
//   mma_m16n8k32_s8, mma_m16n8k16_f16      compute_80: a warp's product of tiles
//   load_matrices_x2, _x4, _transposed     compute_75: 8 x 8 tiles of 16-bit numbers from shared memory to fragments of
//                                          mma
//   copy_async_16, _commit, _wait          compute_80: from global to shared memory, past the registers; plain copies
//                                          before
//   load_once_16                           16 bytes that nobody reads again soon
//   wait_for_turn                          behind it all launches before are done, and the next may begin to wait
//   prefetch                               16 bytes on their way to the second level cache, for cards on which
//                                          wait_for_turn waits
//   anew                                   a number from which nothing is computed ahead of a loop
#pragma once

#include "device.cuh"

#if defined(KERNEL_SIM)
#include "sim/ptx.h"
#endif

// D += A B: A is 16 x 32 by rows, B is 32 x 8 by columns, D 16 x 8 (i32, exact). All lanes take part. With g = lane / 4
// and t = lane % 4, a byte k of a register is column 4 t + k:
//
//   a[0], a[1]   rows g and g + 8 of A, columns 4 t to 4 t + 3        b[0]   column g of B, rows 4 t to 4 t + 3
//   a[2], a[3]   the same, 16 columns on                              b[1]   the same, 16 rows on
//   d[0], d[1]   row g of D, columns 2 t and 2 t + 1                  d[2], d[3]   row g + 8
DEVICE void mma_m16n8k32_s8(int (&d)[4], const int (&a)[4], const int (&b)[2]) {
#if defined(KERNEL_SIM)
    sim::mma_m16n8k32_s8(d, a, b);
#elif __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    __trap();
#endif
}

// D += A B: A is 16 x 16 by rows, B is 16 x 8 by columns, both f16, D is 16 x 8 in f32. Products are exact; cards add
// them in an order and with a rounding of their own, the simulator rounds their sum once. Registers hold two numbers,
// the lower half first:
//
//   a[0], a[1]   rows g and g + 8 of A, columns 2 t and 2 t + 1       b[0]   column g of B, rows 2 t and 2 t + 1
//   a[2], a[3]   the same, 8 columns on                               b[1]   the same, 8 rows on
//   d            as in mma_m16n8k32_s8
DEVICE void mma_m16n8k16_f16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#if defined(KERNEL_SIM)
    sim::mma_m16n8k16_f16(d, a, b);
#elif __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    __trap();
#endif
}

// Tiles of 8 x 8 numbers of 16 bits. Lane l gives the address of row l % 8 of tile l / 8, a multiple of 16 in shared
// memory; of each tile it gets columns 2 t and 2 t + 1 of row g.
DEVICE void load_matrices_x4(unsigned (&tiles)[4], const void* row) {
#if defined(KERNEL_SIM)
    sim::load_matrices(tiles, row, 4, false);
#elif __CUDA_ARCH__ >= 750
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
                 : "r"((unsigned)__cvta_generic_to_shared(row))
                 : "memory");
#else
    __trap();
#endif
}

// As load_matrices_x4, of two tiles: the addresses of lanes 16 to 31 are not looked at.
DEVICE void load_matrices_x2(unsigned (&tiles)[2], const void* row) {
#if defined(KERNEL_SIM)
    sim::load_matrices(tiles, row, 2, false);
#elif __CUDA_ARCH__ >= 750
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(tiles[0]), "=r"(tiles[1])
                 : "r"((unsigned)__cvta_generic_to_shared(row))
                 : "memory");
#else
    __trap();
#endif
}

// As load_matrices_x4, with rows and columns exchanged: a lane gets rows 2 t and 2 t + 1 of column g.
DEVICE void load_matrices_transposed_x4(unsigned (&tiles)[4], const void* row) {
#if defined(KERNEL_SIM)
    sim::load_matrices(tiles, row, 4, true);
#elif __CUDA_ARCH__ >= 750
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
                 : "r"((unsigned)__cvta_generic_to_shared(row))
                 : "memory");
#else
    __trap();
#endif
}

DEVICE void load_matrices_transposed_x2(unsigned (&tiles)[2], const void* row) {
#if defined(KERNEL_SIM)
    sim::load_matrices(tiles, row, 2, true);
#elif __CUDA_ARCH__ >= 750
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(tiles[0]), "=r"(tiles[1])
                 : "r"((unsigned)__cvta_generic_to_shared(row))
                 : "memory");
#else
    __trap();
#endif
}

// Copies 16 bytes to shared memory; both addresses are multiples of 16. They are there for this thread once it has
// waited for their group, for others behind a barrier after that. Where `there` is false nothing is read, and 16 zeros
// are written.
DEVICE void copy_async_16(void* shared, const void* global, bool there = true) {
#if defined(KERNEL_SIM)
    sim::copy_later(shared, global, there);
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"((unsigned)__cvta_generic_to_shared(shared)), "l"(__cvta_generic_to_global(global)), "r"(there ? 16 : 0)
                 : "memory");
#else
    *(int4*)shared = there ? *(const int4*)global : make_int4(0, 0, 0, 0);
#endif
}

// Ends a group of copies of this thread.
DEVICE void copy_async_commit() {
#if defined(KERNEL_SIM)
    sim::commit_copies();
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most the last `groups` groups of this thread are under way.
template <int groups>
DEVICE void copy_async_wait() {
#if defined(KERNEL_SIM)
    sim::wait_for_copies(groups);
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
#endif
}

// The address is a multiple of 16. Other bytes stay in the first level cache in their stead.
DEVICE uint4 load_once_16(const uint4* place) {
#if defined(KERNEL_SIM)
    return *place;
#else
    uint4 loaded;
    // Volatile, so that it stays behind wait_for_turn: what is multiplied may be what an earlier launch wrote.
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(loaded.x), "=r"(loaded.y), "=r"(loaded.z), "=r"(loaded.w)
                 : "l"(__cvta_generic_to_global(place)));
    return loaded;
#endif
}

// Begins a line of PTX that only cards of sm_90 and later get: the loader (the device's kernels.rs) takes the mark away
// for them and names them as the target. For others it is a comment.
#define FROM_SM_90 "//sm_90 "

// A kernel that calls this is launched, from sm_90 on, while the launch before it runs; so each of its threads calls
// it, before it touches anything that an earlier launch writes or reads. Behind it all earlier launches are done, what
// they wrote can be seen, and the launch behind this one may begin, up to this place. Loads that take what they read
// for constant (`__ldg`) may be moved before it: they are for weights in planes alone.
DEVICE void wait_for_turn() {
#if defined(KERNEL_SIM)
    sim::wait_for_turn();
#else
    asm volatile(FROM_SM_90 "griddepcontrol.wait;" ::: "memory");
    asm volatile(FROM_SM_90 "griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Of what no kernel writes; the address is one that may be read.
DEVICE void prefetch(const void* place) {
#if defined(KERNEL_SIM)
    sim::prefetch(place);
#else
    asm volatile(FROM_SM_90 "prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(place)));
#endif
}

// The same number, of which the compiler knows nothing: what follows from it, like addresses, is computed where it is
// used, and takes no registers over a loop that has none to spare.
DEVICE int anew(int number) {
#if !defined(KERNEL_SIM)
    asm volatile("" : "+r"(number));
#endif
    return number;
}
