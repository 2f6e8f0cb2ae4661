// One block: its lanes share an OS thread, each on a stack of its own while it waits.
//
//   run ──▶ a lane begins on a free stack ──▶ returns ──▶ the next begins on the same stack
//                      │
//                      └─▶ waits: the next ready lane goes on, or the next one begins on another free stack
//
// A lane that has nobody to wait for goes on at once, the others are ready behind it. When nobody is ready and nobody
// is left to begin, the block is done, or its lanes wait for each other for ever.

#include "block.h"

#include <link.h>
#include <sys/mman.h>

#include <cstring>
#include <new>
#include <vector>

#include "copies.h"
#include "fault.h"
#include "stack.h"

namespace sim {

constexpr size_t SHARED_BYTES_MAX = 256 * 1024;
constexpr size_t SHARED_GUARD_BYTES = 256;
constexpr unsigned char SHARED_GUARD = 0xa5;
constexpr unsigned char UNWRITTEN = 0xff;
constexpr unsigned ORDERS = 4;

struct Warp {
    Lane* lanes[LANES];
    // Lanes that there are, that have returned, that wait at a collective of the warp.
    unsigned present, exited, waiting;
};

struct Runner : Block {
    Launch* launch = nullptr;
    uint64_t number = 0;
    uint64_t seed = 0;
    unsigned threads = 0, begun = 0, exited = 0;
    bool abandoned = false;
    const uint16_t* order = nullptr;
    Warp warps[BLOCK_THREADS_MAX / LANES];

    Lane* at_barrier[BLOCK_THREADS_MAX];
    unsigned at_barrier_count = 0, barrier_sum = 0, barrier_result = 0;

    // Those that wait for the launches before.
    Lane* before_turn[BLOCK_THREADS_MAX];
    unsigned before_turn_count = 0;

    // A ring of those that may go on: the first or, so that some are far ahead of others, the last that was added.
    Lane* ready[BLOCK_THREADS_MAX];
    unsigned ready_first = 0, ready_count = 0;
    bool last_goes_on = false;

    Stacks stacks{BLOCK_THREADS_MAX};
    std::vector<uintptr_t> free_stacks;
    // Where `run` goes on.
    void* outside = nullptr;

    // Pages of dynamic shared memory, with one without access behind them.
    unsigned char* shared = nullptr;
    unsigned char* guard = nullptr;
    unsigned char* static_shared = nullptr;
    size_t static_shared_bytes = 0;

    // A byte that nobody may write, its value, what it is.
    const volatile unsigned char* watched = nullptr;
    unsigned char watched_value = 0;
    std::string watched_words;

    Copies copies;

    // Orders of threads, for blocks of `orders_threads`.
    std::vector<uint16_t> orders;
    unsigned orders_threads = 0;

    Runner();
    ~Runner();
    void order_threads();
    void start(Launch& of, uint64_t block);
    void run(Launch& of, uint64_t block);
    void watch(const unsigned char* byte, const std::string& words);
    void check_watched() const {
        if (watched != nullptr && *watched != watched_value) fail_with("writes " + watched_words, true);
    }
    size_t shared_overrun() const;
    void free_all_stacks();
    void enter_new_stack(void** from);
    void go_on_elsewhere(void** from);
    void go_on_in_turn();
    void push_ready(Lane& lane);
    Lane& pop_ready();
    std::string deadlock() const;
};

void Launch::end(Fault found) {
    const std::lock_guard lock(mutex);
    if (failed.exchange(true)) return;
    fault = std::move(found);
}

void Turn::let_come() {
    {
        const std::lock_guard lock(mutex);
        come = true;
    }
    changed.notify_all();
}

void Turn::wait() {
    reach();
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return come.load(); });
}

void Turn::reach() {
    {
        const std::lock_guard lock(mutex);
        reached = true;
    }
    changed.notify_all();
}

void Turn::wait_until_reached() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return reached; });
}

static Runner& runner_of(const Lane& lane) { return *static_cast<Runner*>(lane.block); }

// The bytes of `__shared__` variables of this OS thread: the part without initial values of this library's thread-local
// storage. Nothing else may lie there, so the simulator's own thread-local variables have initial values other than
// zero.
static int find_static_shared(dl_phdr_info* info, size_t, void* data) {
    Runner& runner = *static_cast<Runner*>(data);
    const auto here = reinterpret_cast<uintptr_t>(&find_static_shared);
    bool ours = false;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const auto& header = info->dlpi_phdr[i];
        ours |= header.p_type == PT_LOAD && here - info->dlpi_addr - header.p_vaddr < header.p_memsz;
    }
    if (!ours) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const auto& header = info->dlpi_phdr[i];
        if (header.p_type != PT_TLS || info->dlpi_tls_data == nullptr) continue;
        runner.static_shared = static_cast<unsigned char*>(info->dlpi_tls_data) + header.p_filesz;
        runner.static_shared_bytes = header.p_memsz - header.p_filesz;
    }
    return 1;
}

// Asks for this OS thread's storage, which is made at first use.
static thread_local int storage_is_there = 1;

Runner::Runner() {
    void* const map = mmap(nullptr, SHARED_BYTES_MAX + 2 * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) throw std::bad_alloc();
    shared = static_cast<unsigned char*>(map);
    guard = shared + SHARED_BYTES_MAX + PAGE_BYTES - SHARED_GUARD_BYTES;
    mprotect(guard + SHARED_GUARD_BYTES, PAGE_BYTES, PROT_NONE);
    std::memset(guard, SHARED_GUARD, SHARED_GUARD_BYTES);
    const volatile int* touched = &storage_is_there;
    if (*touched == 1) dl_iterate_phdr(find_static_shared, this);
    free_all_stacks();
}

Runner::~Runner() { munmap(shared, SHARED_BYTES_MAX + 2 * PAGE_BYTES); }

// Forward, backward, warps and their lanes in random order, all threads in random order.
void Runner::order_threads() {
    if (orders_threads == threads) return;
    orders_threads = threads;
    orders.resize(ORDERS * threads);
    const auto shuffle = [](uint16_t* begin, unsigned count, uint64_t seed) {
        for (unsigned i = count; i > 1; i--) std::swap(begin[i - 1], begin[(seed = mixed(seed)) % i]);
    };
    for (unsigned order = 0; order < ORDERS; order++) {
        uint16_t* const numbers = orders.data() + order * threads;
        for (unsigned i = 0; i < threads; i++) numbers[i] = (uint16_t)(order == 1 ? threads - 1 - i : i);
        if (order == 3) shuffle(numbers, threads, launch->seed);
    }
    uint16_t warp_order[BLOCK_THREADS_MAX / LANES];
    const unsigned warp_count = (threads + LANES - 1) / LANES;
    for (unsigned i = 0; i < warp_count; i++) warp_order[i] = (uint16_t)i;
    shuffle(warp_order, warp_count, launch->seed);
    uint16_t* next = orders.data() + 2 * threads;
    for (unsigned i = 0; i < warp_count; i++) {
        uint16_t* const first = next;
        for (unsigned n = warp_order[i] * LANES; n < threads && n < (warp_order[i] + 1) * LANES; n++) *next++ = (uint16_t)n;
        shuffle(first, (unsigned)(next - first), launch->seed + i);
    }
}

void Runner::start(Launch& of, uint64_t block) {
    launch = &of;
    number = block;
    seed = mixed(of.seed ^ mixed(block));
    grid = of.grid;
    size = of.size;
    index = {(unsigned)(block % grid.x), (unsigned)(block / grid.x % grid.y), (unsigned)(block / grid.x / grid.y)};
    threads = of.threads();
    begun = exited = at_barrier_count = barrier_sum = before_turn_count = ready_first = ready_count = 0;
    abandoned = false;
    for (unsigned w = 0; w * LANES < threads; w++) {
        const unsigned lanes = threads - w * LANES;
        warps[w].present = lanes >= LANES ? ~0u : (1u << lanes) - 1;
        warps[w].exited = warps[w].waiting = 0;
    }
    copies.begin(seed / ORDERS / 2 % 2 == 1);
    order_threads();
    order = orders.data() + seed % ORDERS * threads;
    last_goes_on = seed / ORDERS % 2 == 1;
    dynamic_shared = guard - (of.shared_bytes + 15) / 16 * 16;
    std::memset(dynamic_shared, UNWRITTEN, of.shared_bytes);
    std::memset(dynamic_shared + of.shared_bytes, SHARED_GUARD, guard - dynamic_shared - of.shared_bytes);
}

// The first byte behind dynamic shared memory that was written, counted from its begin; 0 for none.
size_t Runner::shared_overrun() const {
    const unsigned char* const end = dynamic_shared + launch->shared_bytes;
    const size_t behind = guard + SHARED_GUARD_BYTES - end;
    if (end[0] == SHARED_GUARD && std::memcmp(end, end + 1, behind - 1) == 0) return 0;
    size_t first = 0;
    while (end[first] == SHARED_GUARD) first++;
    return launch->shared_bytes + first;
}

void Runner::watch(const unsigned char* byte, const std::string& words) {
    watched = byte;
    watched_value = byte == nullptr ? 0 : *byte;
    watched_words = words;
}

void Runner::run(Launch& of, uint64_t block) {
    start(of, block);
    watch_stacks(&stacks);
    enter_new_stack(&outside);
    while (!abandoned && before_turn_count > 0) go_on_in_turn();
    watch_stacks(nullptr);
    if (abandoned) {
        forget_signal();
        free_all_stacks();
    } else if (exited < threads) {
        launch->end({false, deadlock()});
        free_all_stacks();
    }
    const size_t overrun = shared_overrun();
    if (overrun == 0) return;
    // Once more, for the thread: what it computes is lost anyway.
    const std::string there_are = std::to_string(launch->shared_bytes) + " bytes of dynamic shared memory";
    const std::string words = "byte " + std::to_string(overrun) + " of its " + there_are;
    std::memset(guard, SHARED_GUARD, SHARED_GUARD_BYTES);
    if (watched == nullptr) {
        std::memset(dynamic_shared + launch->shared_bytes, SHARED_GUARD, guard - dynamic_shared - launch->shared_bytes);
        watch(dynamic_shared + overrun, words);
        run(of, block);
        watch(nullptr, "");
    }
    launch->end({true, block_words(*launch, *this) + " writes " + words});
}

void Runner::free_all_stacks() {
    stacks.forget();
    free_stacks.clear();
    for (unsigned i = BLOCK_THREADS_MAX; i > 0; i--) free_stacks.push_back(stacks.stack(i - 1));
}

void Runner::push_ready(Lane& lane) {
    ready[(ready_first + ready_count) % BLOCK_THREADS_MAX] = &lane;
    ready_count++;
}

Lane& Runner::pop_ready() {
    ready_count--;
    if (last_goes_on) return *ready[(ready_first + ready_count) % BLOCK_THREADS_MAX];
    Lane& lane = *ready[ready_first];
    ready_first = (ready_first + 1) % BLOCK_THREADS_MAX;
    return lane;
}

// Runs threads that have not begun, on a stack that was entered for them, and never returns.
static void run_threads() {
    arrive();
    Runner& runner = runner_of(lane());
    runner.launch->kernel->run(runner.launch->arguments);
    runner.free_stacks.push_back(reinterpret_cast<uintptr_t>(&lane()) & ~(STACK_BYTES - 1));
    void* nowhere;
    runner.go_on_elsewhere(&nowhere);
    __builtin_unreachable();
}

void Runner::enter_new_stack(void** from) {
    const uintptr_t stack = free_stacks.back();
    free_stacks.pop_back();
    Lane& lane = lane_of_stack(stack);
    lane.block = this;
    enter_stack(from, stack, run_threads);
}

// Saves this stack in `from` and lets somebody else go on.
void Runner::go_on_elsewhere(void** from) {
    if (ready_count > 0) {
        switch_stack(from, pop_ready().stack_pointer);
    } else if (begun < threads) {
        enter_new_stack(from);
    } else {
        switch_stack(from, outside);
    }
}

// Nobody goes on but those that wait for the launches before. Where one of these has failed, nobody does.
void Runner::go_on_in_turn() {
    launch->turn.wait();
    abandoned = launch->failed;
    if (abandoned) return;
    for (unsigned i = 0; i < before_turn_count; i++) push_ready(*before_turn[i]);
    before_turn_count = 0;
    switch_stack(&outside, pop_ready().stack_pointer);
}

void wait_for_turn() {
    Lane& self = lane();
    Runner& runner = runner_of(self);
    self.has_waited = true;
    if (runner.launch->turn.has_come()) return;
    runner.check_watched();
    runner.before_turn[runner.before_turn_count++] = &self;
    runner.go_on_elsewhere(&self.stack_pointer);
}

bool begin_thread() {
    Lane& self = lane();
    Runner& runner = runner_of(self);
    // Who waited goes on first: few stacks are in use, and those are in the cache.
    if (runner.begun == runner.threads || runner.ready_count > 0) return false;
    const unsigned number = runner.order[runner.begun++], x = runner.size.x, y = runner.size.y;
    self.number = number;
    if (x == runner.threads) {
        self.thread = {number, 0, 0};
    } else {
        self.thread = {number % x, number / x % y, number / x / y};
    }
    self.collective = nullptr;
    self.has_waited = false;
    return true;
}

void end_thread() {
    Lane& self = lane();
    Runner& runner = runner_of(self);
    runner.copies.end(self.number);
    runner.check_watched();
    if (runner.launch->early && !self.has_waited) {
        fail_with("returns without having waited for the launch before, in whose time it may have begun");
    }
    Warp& warp = runner.warps[self.number / LANES];
    const unsigned bit = 1u << self.number % LANES;
    warp.exited |= bit;
    runner.exited++;
    for (unsigned waiting = warp.waiting; waiting != 0; waiting &= waiting - 1) {
        const Lane& other = *warp.lanes[__builtin_ctz(waiting)];
        if (!(other.mask & bit)) continue;
        fail_with("returns while lane " + std::to_string(other.number % LANES) + " waits for it at " + other.collective);
    }
    if (runner.at_barrier_count > 0) {
        const Lane& other = *runner.at_barrier[0];
        fail_with("returns while " + thread_words(other) + " waits for all threads of the block at " + other.collective);
    }
}

// Who cannot come or is elsewhere.
static void check_mask(const Lane& self, const Warp& warp) {
    const unsigned bit = 1u << self.number % LANES, mask = self.mask;
    const std::string call = std::string(self.collective) + " with mask " + mask_words(mask);
    if (!(mask & bit)) fail_with("calls " + call + ", which does not name its own lane " + std::to_string(self.number % LANES));
    if (mask & ~warp.present) fail_with("calls " + call + ", which names lanes that a block of this size does not have");
    if (mask & warp.exited) {
        fail_with("calls " + call + ", which names lane " + std::to_string(__builtin_ctz(mask & warp.exited)) + ", which has returned");
    }
}

static void check_same(const Lane& self, const Lane& other) {
    if (self.mask == other.mask && (self.collective == other.collective || std::strcmp(self.collective, other.collective) == 0)) return;
    const std::string lane_words = "lane " + std::to_string(other.number % LANES);
    fail_with(std::string("is at ") + self.collective + " with mask " + mask_words(self.mask) + " while " + lane_words + ", which it names, is at " +
              other.collective + " with mask " + mask_words(other.mask));
}

void meet(const char* collective, unsigned mask, void* operand, Compute compute) {
    Lane& self = lane();
    Runner& runner = runner_of(self);
    Warp& warp = runner.warps[self.number / LANES];
    const unsigned own = self.number % LANES, bit = 1u << own;
    self.collective = collective;
    self.mask = mask;
    self.operand = operand;
    if (!(mask & bit) || mask & ~warp.present || mask & warp.exited) check_mask(self, warp);
    warp.lanes[own] = &self;
    warp.waiting |= bit;
    const unsigned others = warp.waiting & mask & ~bit;
    if (others) check_same(self, *warp.lanes[__builtin_ctz(others)]);
    if ((warp.waiting & mask) != mask) {
        runner.check_watched();
        runner.go_on_elsewhere(&self.stack_pointer);
        return;
    }
    void* operands[LANES] = {};
    for (unsigned l = 0; l < LANES; l++) {
        if (!(mask >> l & 1)) continue;
        check_same(self, *warp.lanes[l]);
        operands[l] = warp.lanes[l]->operand;
    }
    compute(operands, mask);
    warp.waiting &= ~mask;
    for (unsigned l = 0; l < LANES; l++) {
        if (!(mask >> l & 1)) continue;
        warp.lanes[l]->collective = nullptr;
        if (l != own) runner.push_ready(*warp.lanes[l]);
    }
}

unsigned meet_block(const char* collective, unsigned value) {
    Lane& self = lane();
    Runner& runner = runner_of(self);
    self.collective = collective;
    if (runner.exited > 0) {
        fail_with(std::string("is at ") + collective + ", but " + std::to_string(runner.exited) + " threads of its block have returned");
    }
    if (runner.at_barrier_count > 0 && std::strcmp(collective, runner.at_barrier[0]->collective) != 0) {
        const Lane& other = *runner.at_barrier[0];
        fail_with(std::string("is at ") + collective + " while " + thread_words(other) + " is at " + other.collective);
    }
    runner.at_barrier[runner.at_barrier_count++] = &self;
    runner.barrier_sum += value;
    if (runner.at_barrier_count < runner.threads) {
        runner.check_watched();
        runner.go_on_elsewhere(&self.stack_pointer);
        return runner.barrier_result;
    }
    runner.barrier_result = runner.barrier_sum;
    runner.barrier_sum = runner.at_barrier_count = 0;
    runner.seed = mixed(runner.seed);
    // Ready from anywhere on, in the order in which they came.
    const unsigned first = (unsigned)(runner.seed % runner.threads);
    for (unsigned i = 0; i < runner.threads; i++) {
        Lane& other = *runner.at_barrier[(first + i) % runner.threads];
        other.collective = nullptr;
        if (&other != &self) runner.push_ready(other);
    }
    return runner.barrier_result;
}

void copy_later(void* shared, const void* global, bool there) {
    const Lane& self = lane();
    const auto aligned = [](const void* address) { return reinterpret_cast<uintptr_t>(address) % Copies::BYTES == 0; };
    if (!aligned(shared) || !aligned(global)) fail("copies 16 bytes from or to an address that is no multiple of 16", true);
    runner_of(self).copies.add(self.number, shared, there ? global : nullptr);
}

void commit_copies() { runner_of(lane()).copies.commit(lane().number); }

void wait_for_copies(unsigned groups) { runner_of(lane()).copies.finish(lane().number, groups); }

// Who waits for whom, of a block in which nobody can go on.
std::string Runner::deadlock() const {
    for (unsigned w = 0; w * LANES < threads; w++) {
        const Warp& warp = warps[w];
        if (warp.waiting == 0) continue;
        const Lane& lane = *warp.lanes[__builtin_ctz(warp.waiting)];
        const unsigned absent = lane.mask & ~warp.waiting;
        return lane_words(*launch, lane) + " waits for ever at " + lane.collective + " with mask " + mask_words(lane.mask) + ": lanes " +
               mask_words(absent) + " are elsewhere";
    }
    const Lane& lane = *at_barrier[0];
    return lane_words(*launch, lane) + " waits for ever at " + lane.collective + ": " + std::to_string(at_barrier_count) + " of " +
           std::to_string(threads) + " threads have come";
}

void fail_with(const std::string& sentence, bool address) {
    Lane& self = lane();
    Runner& runner = runner_of(self);
    runner.launch->end({address, lane_words(*runner.launch, self) + " " + sentence});
    abandon_block(self);
}

void abandon_block(const Lane& self) {
    Runner& runner = runner_of(self);
    runner.abandoned = true;
    void* nowhere;
    switch_stack(&nowhere, runner.outside);
    __builtin_unreachable();
}

Launch& launch_of(const Lane& lane) { return *runner_of(lane).launch; }

void fail(const char* sentence, bool address) { fail_with(sentence, address); }

Worker::Worker() : runner(std::make_unique<Runner>()) { watch_this_thread(); }
Worker::~Worker() { unwatch_this_thread(); }

void Worker::begin(const Launch&) { std::memset(runner->static_shared, UNWRITTEN, runner->static_shared_bytes); }

void Worker::run(Launch& launch, uint64_t number) { runner->run(launch, number); }

void Worker::watch(const unsigned char* byte, const std::string& words) { runner->watch(byte, words); }

}  // namespace sim
