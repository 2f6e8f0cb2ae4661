// The list of kernels, and grids spread over OS threads.
#pragma once

#include <string>

#include "block.h"

namespace sim {

// The kernel of that name, or null.
const Kernel* find_kernel(const char* name);

// A name that two kernels have, or null.
const char* kernel_twice();

// Computes all blocks on this OS thread and, where there is enough to do and they are not busy, on others.
void run_grid(Worker& own, Launch& launch);

}  // namespace sim
