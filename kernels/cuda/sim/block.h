// Launches and the OS threads that run their blocks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "lanes.h"

namespace sim {

// What a kernel did that a card forbids.
struct Fault {
    // Whether it is about memory.
    bool address;
    // Kernel, block, thread and what they did.
    std::string sentence;
};

// When a launch that has begun early may go on: once the launches before it are done.
class Turn {
public:
    bool has_come() const { return come; }
    // Before any block begins.
    void put_off() { come = false; }
    void let_come();
    // By a block that can go no further: tells that, and waits.
    void wait();
    // A block waits here, or has ended before.
    void reach();
    void wait_until_reached();

private:
    std::mutex mutex;
    std::condition_variable changed;
    std::atomic<bool> come = true;
    bool reached = false;
};

// A grid that is computed. The first fault of any of its blocks ends it.
struct Launch {
    const Kernel* const kernel;
    const dim3 grid, size;
    const size_t shared_bytes;
    const unsigned char* const arguments;
    // Orders of blocks and lanes follow from it.
    const uint64_t seed;

    // Whether it may begin before the launch before it has ended: then each of its threads has to wait for its turn.
    const bool early;
    Turn turn;
    // The block that another OS thread has begun already.
    uint64_t begun = ~uint64_t{0};

    std::atomic<bool> failed = false;
    std::mutex mutex;
    Fault fault;

    Launch(const Kernel* kernel, dim3 grid, dim3 size, size_t shared_bytes, const unsigned char* arguments, uint64_t seed,
           bool early = false)
        : kernel(kernel), grid(grid), size(size), shared_bytes(shared_bytes), arguments(arguments), seed(seed), early(early) {}
    uint64_t blocks() const { return (uint64_t)grid.x * grid.y * grid.z; }
    unsigned threads() const { return size.x * size.y * size.z; }
    void end(Fault found);
};

// A well mixed number for each seed.
inline uint64_t mixed(uint64_t seed) {
    seed += 0x9e3779b97f4a7c15;
    seed = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9;
    seed = (seed ^ seed >> 27) * 0x94d049bb133111eb;
    return seed ^ seed >> 31;
}

struct Runner;

// What an OS thread needs to run blocks: stacks, shared memory. It is made, used and destroyed on one OS thread.
class Worker {
public:
    Worker();
    ~Worker();
    Worker(const Worker&) = delete;
    // Called before the first block of a launch on this OS thread: shared memory holds nothing.
    void begin(const Launch& launch);
    // One block, by its number in order over x, y and z. A fault is told to the launch.
    void run(Launch& launch, uint64_t number);
    // From now on, the thread that changes this byte is at fault: it "writes" `words`. Null for none.
    void watch(const unsigned char* byte, const std::string& words);

private:
    std::unique_ptr<Runner> runner;
};

}  // namespace sim
