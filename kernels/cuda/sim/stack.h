// Stacks of lanes and the switch between them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lanes.h"

namespace sim {

// Stacks of one OS thread, each with a page without access at its end.
class Stacks {
public:
    explicit Stacks(unsigned count);
    ~Stacks();
    Stacks(const Stacks&) = delete;
    // Where stack number `i` begins: its lowest address.
    uintptr_t stack(unsigned i) const { return first + i * STACK_BYTES; }
    bool holds(uintptr_t address) const { return address - first < count * STACK_BYTES; }
    // Nothing on them is needed any more; frames were left without a return.
    void forget();

private:
    unsigned count;
    void* map;
    uintptr_t first;
};

// Saves where this stack goes on in `from`, and goes on where `to` was saved.
void switch_stack(void** from, void* to);

// Saves where this stack goes on in `from`, and calls `entry` on an empty one. It calls `arrive` first, and never
// returns.
void enter_stack(void** from, uintptr_t stack, void (*entry)());
void arrive();

}  // namespace sim
