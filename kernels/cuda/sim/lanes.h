// Lanes: the threads of a block as the simulator runs them, and how they wait for each other.
//
// An OS thread runs one block at a time. Its lanes share that OS thread, one after the other: a lane runs on a stack
// until it returns or waits at a collective. Only a lane that waits keeps its stack; the others follow each other on
// one, so a kernel without collectives is a loop.
//
//   stack of a lane:  | page without access | ... <- grows down | Lane |
//
// Stacks lie at multiples of STACK_BYTES, so that a lane is found by the address of its frame.
#pragma once

#include <cstddef>
#include <cstdint>

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};

namespace sim {

struct Block;

constexpr uintptr_t STACK_BYTES = 64 * 1024;
constexpr uintptr_t PAGE_BYTES = 4096;
constexpr unsigned LANES = 32;
constexpr unsigned BLOCK_THREADS_MAX = 1024;

struct alignas(64) Lane {
    uint3 thread;
    // In order over x, y and z.
    unsigned number;
    Block* block;
    // Where it goes on, if it waits.
    void* stack_pointer;
    // What a collective takes from it and gives to it, on its own stack.
    void* operand;
    // The collective that it waits at, or null.
    const char* collective;
    unsigned mask;
    // Whether it has waited for the launches before its own.
    bool has_waited;
};
static_assert(sizeof(Lane) == 64);

// What lanes see of their block.
struct Block {
    uint3 index;
    dim3 size;
    dim3 grid;
    unsigned char* dynamic_shared;
};

// Where the lane of a stack lies: in its last page, each at another place of it, so that not all fall into the same
// lines of the cache.
inline Lane& lane_of_stack(uintptr_t stack) {
    return *reinterpret_cast<Lane*>(stack + STACK_BYTES - PAGE_BYTES + (stack / STACK_BYTES * sizeof(Lane)) % PAGE_BYTES);
}

// The lane that runs.
inline Lane& lane() {
    return lane_of_stack(reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) & ~(STACK_BYTES - 1));
}

// Makes this lane the next thread of its block that has not begun; false where there is none.
bool begin_thread();
void end_thread();

// Ends the launch: this lane has done what a card forbids. `sentence` says what, without kernel, block and thread;
// `address` is whether it is about memory (CUDA_ERROR_ILLEGAL_ADDRESS) or not (CUDA_ERROR_LAUNCH_FAILED).
[[noreturn]] void fail(const char* sentence, bool address = false);

// What the last lane computes for all: `operands` of the lanes in `mask`.
typedef void (*Compute)(void* const* operands, unsigned mask);

// Waits until all lanes in `mask` of the warp are at the same collective; the last computes.
void meet(const char* collective, unsigned mask, void* operand, Compute compute);

// Waits until all threads of the block are here; the sum of `value` over them.
unsigned meet_block(const char* collective, unsigned value);

// Waits until all launches before this lane's own are done.
void wait_for_turn();

// Copies of 16 bytes, zeros where the source is not `there`: done when their lane waits for their group, no earlier.
void copy_later(void* shared, const void* global, bool there);
void commit_copies();
// Does all groups of this lane but the last ones.
void wait_for_copies(unsigned groups);

// A kernel: what registers it and what runs it.
struct Kernel {
    const char* name;
    // Sizes and places in bytes of the arguments, which are copied at the launch.
    const size_t* sizes;
    const size_t* places;
    size_t arguments;
    size_t arguments_bytes;
    // Runs threads of the block on this stack until none is left to begin.
    void (*run)(const unsigned char* arguments);
    Kernel* next;
};

// Adds a kernel to those of this library; a name that is there already is told by `kernel_twice`.
void add_kernel(Kernel& kernel);

}  // namespace sim
