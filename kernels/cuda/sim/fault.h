// Faults of kernels: their sentences, and those that the processor finds (memory without access, division by zero).
#pragma once

#include <string>

#include "block.h"
#include "stack.h"

namespace sim {

// As `fail`, with words made for it.
[[noreturn]] void fail_with(const std::string& sentence, bool address = false);

// Ends a block from within one of its lanes.
[[noreturn]] void abandon_block(const Lane& self);

Launch& launch_of(const Lane& lane);

// "kernel add_f32, block (1, 0, 0)".
std::string block_words(const Launch& launch, const Block& block);
// "thread (3, 0, 0)".
std::string thread_words(const Lane& lane);
// Both.
std::string lane_words(const Launch& launch, const Lane& lane);
std::string mask_words(unsigned mask);

// Takes SIGSEGV, SIGBUS and SIGFPE, once; those from outside of kernels go on to who had them.
void catch_signals();
// Gives this OS thread a stack for signals, on which the overflow of another can be seen.
void watch_this_thread();
void unwatch_this_thread();
// What a signal left on that stack, which it did not return from, is not needed any more.
void forget_signal();
// While kernels run on them; null when none does.
void watch_stacks(const Stacks* stacks);
const Stacks* watched_stacks();

}  // namespace sim
