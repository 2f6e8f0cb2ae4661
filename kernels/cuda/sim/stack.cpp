// x86-64: registers that a called function keeps go onto the stack, whose pointer is all that is saved. Elsewhere by
// ucontext.

#include "stack.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>

#include "fault.h"
#endif

namespace sim {

Stacks::Stacks(unsigned count) : count(count) {
    const size_t bytes = (count + 1) * STACK_BYTES;
    map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) throw std::bad_alloc();
    first = (reinterpret_cast<uintptr_t>(map) + STACK_BYTES - 1) & ~(STACK_BYTES - 1);
    for (unsigned i = 0; i < count; i++) mprotect(reinterpret_cast<void*>(stack(i)), PAGE_BYTES, PROT_NONE);
}

Stacks::~Stacks() {
    forget();
    munmap(map, (count + 1) * STACK_BYTES);
}

void Stacks::forget() {
#if defined(__SANITIZE_ADDRESS__)
    for (unsigned i = 0; i < count; i++) __asan_unpoison_memory_region(reinterpret_cast<void*>(stack(i) + PAGE_BYTES), STACK_BYTES - PAGE_BYTES);
#endif
}

#if defined(__x86_64__) && !defined(SIM_PORTABLE_STACKS)

extern "C" __attribute__((visibility("hidden"))) void trueup_sim_switch(void** from, void* to);
asm(R"(
    .text
    .p2align 4
    .hidden trueup_sim_switch
    .globl trueup_sim_switch
    .type trueup_sim_switch, @function
trueup_sim_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size trueup_sim_switch, .-trueup_sim_switch
)");

static void leave(void** from, void* to) { trueup_sim_switch(from, to); }

static void leave_for_entry(void** from, uintptr_t stack, void (*entry)()) {
    constexpr int KEPT_REGISTERS = 6;
    void** top = reinterpret_cast<void**>(&lane_of_stack(stack));
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(entry);
    for (int i = 0; i < KEPT_REGISTERS; i++) *--top = nullptr;
    trueup_sim_switch(from, top);
}

#else

static void leave(void** from, void* to) {
    ucontext_t own;
    *from = &own;
    swapcontext(&own, static_cast<ucontext_t*>(to));
}

static void leave_for_entry(void** from, uintptr_t stack, void (*entry)()) {
    ucontext_t own, fresh;
    *from = &own;
    getcontext(&fresh);
    fresh.uc_link = nullptr;
    fresh.uc_stack.ss_sp = reinterpret_cast<void*>(stack + PAGE_BYTES);
    fresh.uc_stack.ss_size = reinterpret_cast<uintptr_t>(&lane_of_stack(stack)) - stack - PAGE_BYTES;
    makecontext(&fresh, entry, 0);
    swapcontext(&own, &fresh);
}

#endif

#if defined(__SANITIZE_ADDRESS__)

// Tells the sanitizer which stack is the next: a lane's, or the OS thread's own, which is anywhere else.
static void tell(void** fake, uintptr_t to) {
    const Stacks* const stacks = watched_stacks();
    if (stacks != nullptr && stacks->holds(to)) {
        __sanitizer_start_switch_fiber(fake, reinterpret_cast<void*>((to & ~(STACK_BYTES - 1)) + PAGE_BYTES), STACK_BYTES - PAGE_BYTES);
        return;
    }
    pthread_attr_t attributes;
    void* bottom = nullptr;
    size_t bytes = 0;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &bottom, &bytes);
    pthread_attr_destroy(&attributes);
    __sanitizer_start_switch_fiber(fake, bottom, bytes);
}

void arrive() { __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr); }

void switch_stack(void** from, void* to) {
    void* fake;
    tell(&fake, reinterpret_cast<uintptr_t>(to));
    leave(from, to);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
}

void enter_stack(void** from, uintptr_t stack, void (*entry)()) {
    void* fake;
    // The frame of the last entry, which did not return.
    __asan_unpoison_memory_region(reinterpret_cast<void*>(stack + STACK_BYTES - 2 * PAGE_BYTES), 2 * PAGE_BYTES);
    tell(&fake, stack);
    leave_for_entry(from, stack, entry);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
}

#else

void arrive() {}
void switch_stack(void** from, void* to) { leave(from, to); }
void enter_stack(void** from, uintptr_t stack, void (*entry)()) { leave_for_entry(from, stack, entry); }

#endif

}  // namespace sim
