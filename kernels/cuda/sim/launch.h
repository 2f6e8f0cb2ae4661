// The list of kernels, and grids spread over OS threads.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "block.h"

namespace sim {

// The kernel of that name, or null.
const Kernel* find_kernel(const char* name);

// A name that two kernels have, or null.
const char* kernel_twice();

// Computes all blocks on this OS thread and, where there is enough to do and they are not busy, on others.
void run_grid(Worker& own, Launch& launch);

// An OS thread that begins a block of a launch while the launch before it has not begun, and goes on with it when its
// turn has come.
class Forerunner {
public:
    Forerunner();
    ~Forerunner();
    Forerunner(const Forerunner&) = delete;
    // The launch's block `begun`: returns when its threads wait for their turn, or have ended.
    void begin(Launch& launch);
    // Waits for the end of that block, whose turn has come.
    void finish();

private:
    void run();

    std::mutex mutex;
    std::condition_variable changed;
    Launch* current = nullptr;
    bool ended = false;
    std::thread thread;
};

}  // namespace sim
