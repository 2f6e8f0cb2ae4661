// What the entry points share: the calling thread's context, handles, sentences for errors.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "api.h"
#include "card.h"
#include "graph.h"
#include "stream.h"

namespace sim {

// Keeps what is to be said of a result until this thread asks (cuGetErrorString).
Result say(Result result, const std::string& sentence);

// The calling thread's context, or why there is none that can be used: its error stays.
struct Here {
    std::shared_ptr<Context> context;
    Result result;
};
Here here();
void set_current(const Context* context);

// A stream of a context: null and LEGACY name the context's own; null if there is none of that handle.
std::shared_ptr<Stream> find_stream(Context& context, void* handle);

// What a module's text says of itself.
struct Module {
    // The generation that it is for; 0 where it names none.
    int target;
};

// A kernel as a module of a context has it.
struct Function {
    const Kernel* kernel;
    int target;
    std::atomic<int> dynamic_shared_bytes_max;
};

struct Event {
    const Context* context;
    bool timed;
    std::mutex mutex;
    std::shared_ptr<Record> record;
};

Handles<Stream>& streams();
Handles<Event>& events();
Handles<Graph>& graphs();
Handles<GraphExec>& graph_execs();
Handles<Module>& modules();
Handles<Function>& functions();

// A launch's limits were kept, and its arguments copied.
Result make_kernel_node(void* function, dim3 grid, dim3 size, size_t shared_bytes, void** arguments, void** extra, KernelNode& node);

// Limits of the cards that are imitated. Their generation, as ten times its major number and its minor one: 90, or what
// TRUEUP_CUDA_SIM_CAPABILITY says; 0 where that is no generation.
int capability();
// From this one on, launches may begin early.
constexpr int CAPABILITY_EARLY = 90;
constexpr int MULTIPROCESSORS = 4;
constexpr int MULTIPROCESSOR_THREADS = 2048;
constexpr int MULTIPROCESSOR_BLOCKS = 32;
constexpr int MULTIPROCESSOR_SHARED_BYTES = 164 * 1024;
constexpr int BLOCK_SHARED_BYTES = 48 * 1024;
constexpr int BLOCK_SHARED_BYTES_MAX = 163 * 1024;
// Of each block, for the system.
constexpr int BLOCK_SHARED_BYTES_TAKEN = 1024;

}  // namespace sim
