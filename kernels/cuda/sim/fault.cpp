#include "fault.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdio>
#include <mutex>
#include <new>

#include "memory.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace sim {

constexpr size_t SIGNAL_STACK_BYTES = 64 * 1024;
constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE};
static struct sigaction before[3];

// Thread-local variables have other initial values than zero: find_static_shared in block.cpp.
static const Stacks* const NO_STACKS = reinterpret_cast<const Stacks*>(1);
static thread_local const Stacks* watched = reinterpret_cast<const Stacks*>(1);
static thread_local void* signal_stack = MAP_FAILED;

static std::string three(const uint3& numbers) {
    return "(" + std::to_string(numbers.x) + ", " + std::to_string(numbers.y) + ", " + std::to_string(numbers.z) + ")";
}

std::string block_words(const Launch& launch, const Block& block) {
    return std::string("kernel ") + launch.kernel->name + ", block " + three(block.index);
}

std::string thread_words(const Lane& lane) { return "thread " + three(lane.thread); }

std::string lane_words(const Launch& launch, const Lane& lane) { return block_words(launch, *lane.block) + ", " + thread_words(lane); }

std::string mask_words(unsigned mask) {
    char words[16];
    std::snprintf(words, sizeof words, "0x%08x", mask);
    return words;
}

static uintptr_t stack_pointer(const ucontext_t& context) {
#if defined(__x86_64__)
    return (uintptr_t)context.uc_mcontext.gregs[REG_RSP];
#elif defined(__aarch64__)
    return context.uc_mcontext.sp;
#else
#error "where does this processor's context hold the stack pointer?"
#endif
}

// "reads", "writes", or both where the processor does not tell.
static const char* access_words([[maybe_unused]] const ucontext_t& context) {
#if defined(__x86_64__)
    return context.uc_mcontext.gregs[REG_ERR] & 2 ? "writes" : "reads";
#else
    return "reads or writes";
#endif
}

// A kernel's fault ends its block: the signal's own stack is left for good.
static void on_signal(int signal, siginfo_t* info, void* data) {
    const auto& context = *static_cast<const ucontext_t*>(data);
    const uintptr_t at = stack_pointer(context);
    const Stacks* const stacks = watched_stacks();
    if (stacks == nullptr || !stacks->holds(at)) {
        for (size_t i = 0; i < std::size(SIGNALS); i++) {
            if (SIGNALS[i] == signal) sigaction(signal, &before[i], nullptr);
        }
        return;
    }
    const Lane& lane = lane_of_stack(at & ~(STACK_BYTES - 1));
    Launch& launch = launch_of(lane);
    std::string sentence = lane_words(launch, lane) + " ";
    const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
    if (signal == SIGFPE) {
        sentence += "divides an integer by zero";
    } else if (stacks->holds(address)) {
        sentence += "needs more than " + std::to_string((STACK_BYTES - 2 * PAGE_BYTES) / 1024) + " KiB of stack for its own variables";
    } else {
        sentence += std::string(access_words(context)) + " " + address_words(address);
    }
    launch.end({signal != SIGFPE, sentence});
    abandon_block(lane);
}

void catch_signals() {
    static std::once_flag once;
    std::call_once(once, [] {
        for (size_t i = 0; i < std::size(SIGNALS); i++) {
            struct sigaction action = {};
            action.sa_sigaction = on_signal;
            action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
            sigaction(SIGNALS[i], &action, &before[i]);
        }
    });
}

void watch_this_thread() {
    signal_stack = mmap(nullptr, SIGNAL_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (signal_stack == MAP_FAILED) throw std::bad_alloc();
    stack_t stack = {};
    stack.ss_sp = signal_stack;
    stack.ss_size = SIGNAL_STACK_BYTES;
    sigaltstack(&stack, nullptr);
}

void forget_signal() {
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(signal_stack, SIGNAL_STACK_BYTES);
#endif
}

void unwatch_this_thread() {
    forget_signal();
    stack_t stack = {};
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, nullptr);
    munmap(signal_stack, SIGNAL_STACK_BYTES);
}

void watch_stacks(const Stacks* stacks) { watched = stacks == nullptr ? NO_STACKS : stacks; }

const Stacks* watched_stacks() { return watched == NO_STACKS ? nullptr : watched; }

}  // namespace sim
