// Launches that begin before the last has ended: one by one and in graphs, right and with faults, and modules that
// cannot wait.

#include <atomic>

#include "../api.h"
#include "check.h"

using sim::LaunchAttribute;
using sim::LaunchConfig;

constexpr unsigned BLOCKS = 4, THREADS = 64;
constexpr int ELEMENTS = (int)(BLOCKS * THREADS), LAUNCHES = 12;

static int launch_early(void* function, void* stream, uintptr_t x, uintptr_t y, int n) {
    void* arguments[] = {&x, &y, &n};
    LaunchAttribute attribute = {sim::ATTRIBUTE_SERIALIZATION, 0, 1, {}};
    const LaunchConfig config = {BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, &attribute, 1};
    return cuLaunchKernelEx(&config, function, arguments, nullptr);
}

static void* new_stream() {
    void* stream = nullptr;
    expect_result(cuStreamCreate(&stream, sim::STREAM_NON_BLOCKING), 0, "a stream");
    return stream;
}

// Each launch doubles what the one before has written, and the first of a run what the host has. Rooms take turns: what
// a launch writes, the one before the last has read.
class Chain {
public:
    explicit Chain(const char* kernel) : function(function_named(kernel)) {}
    void set(float first) {
        const std::vector<float> values = counted(ELEMENTS, first);
        expect_result(cuMemcpyHtoD_v2(start.address, values.data(), values.size() * sizeof(float)), 0, "a copy");
    }
    void ask(void* stream) const {
        for (int i = 0; i < LAUNCHES; i++) {
            const uintptr_t from = i == 0 ? start.address : rooms[i % 2].address;
            expect_result(launch_early(function, stream, from, rooms[(i + 1) % 2].address, ELEMENTS), 0, "a launch that begins early");
        }
    }
    bool is_right(float first) const {
        const std::vector<float> values = rooms[LAUNCHES % 2].read();
        for (int i = 0; i < ELEMENTS; i++) {
            if (!(values[(size_t)i] == (float)(1 << LAUNCHES) * (first + (float)i))) return false;
        }
        return true;
    }

private:
    void* const function;
    const Floats start{ELEMENTS}, rooms[2] = {Floats(ELEMENTS), Floats(ELEMENTS)};
};

static bool graph_is_right(const char* kernel) {
    fresh_context(0);
    void *const stream = new_stream(), *graph = nullptr, *exec = nullptr;
    Chain chain(kernel);
    expect_result(cuStreamBeginCapture_v2(stream, sim::CAPTURE_GLOBAL), 0, "a capture");
    chain.ask(stream);
    expect_result(cuStreamEndCapture(stream, &graph), 0, "a capture's end");
    expect_result(cuGraphInstantiateWithFlags(&exec, graph, 0), 0, "an executable graph");
    bool right = true;
    for (const float first : {1.0f, 50.0f, 7.0f}) {
        chain.set(first);
        expect_result(cuGraphLaunch(exec, stream), 0, "a graph");
        expect_result(cuStreamSynchronize(stream), 0, kernel);
        right &= chain.is_right(first);
    }
    return right;
}

static bool stream_is_right(const char* kernel) {
    fresh_context(0);
    void* const stream = new_stream();
    Chain chain(kernel);
    bool right = true;
    for (const float first : {1.0f, 50.0f, 7.0f}) {
        chain.set(first);
        // All is asked for before anything runs.
        std::atomic<bool> open = false;
        const auto wait = [](void* open) { static_cast<std::atomic<bool>*>(open)->wait(false); };
        expect_result(cuLaunchHostFunc(stream, wait, &open), 0, "a function of the host");
        chain.ask(stream);
        open = true;
        open.notify_all();
        expect_result(cuStreamSynchronize(stream), 0, kernel);
        right &= chain.is_right(first);
    }
    return right;
}

static void check_chains() {
    for (const char* right : {"turn_waited_for", "turn_behind_barrier"}) {
        expect(graph_is_right(right), std::string(right) + " in a graph computes something else");
        expect(stream_is_right(right), std::string(right) + " computes something else");
    }
    for (const char* wrong : {"turn_read_before", "turn_written_before"}) {
        expect(!graph_is_right(wrong), std::string(wrong) + " in a graph is not found");
        expect(!stream_is_right(wrong), std::string(wrong) + " is not found");
    }
}

static void expect_words(const std::string& sentence, const char* words) {
    expect(sentence.find(words) != std::string::npos, std::string("\"") + words + "\" is not in " + sentence);
}

static void check_told(const char* kernel, int n) {
    fresh_context(0);
    const Floats x(counted(ELEMENTS)), y(ELEMENTS);
    expect_result(launch_early(function_named(kernel), nullptr, x.address, y.address, n), 0, kernel);
    const int result = cuCtxSynchronize();
    expect_result(result, sim::LAUNCH_FAILED, kernel);
    expect_words(sentence_of(result), kernel);
    expect_words(sentence_of(result), "returns without having waited for the launch before");
}

// What begins behind a launch that fails does not go on, and its fault is not told.
static void check_behind_failure() {
    fresh_context(0);
    void *const stream = new_stream(), *graph = nullptr, *exec = nullptr;
    const Floats x(counted(ELEMENTS)), y(ELEMENTS), z(ELEMENTS);
    expect_result(cuStreamBeginCapture_v2(stream, sim::CAPTURE_GLOBAL), 0, "a capture");
    expect_result(launch("trap", 3, 32, 0, stream, x.address, y.address, 32), 0, "a captured launch");
    for (int i = 0; i < 4; i++) {
        expect_result(launch_early(function_named("turn_not_waited_for"), stream, y.address, z.address, ELEMENTS), 0, "a captured launch");
    }
    expect_result(cuStreamEndCapture(stream, &graph), 0, "a capture's end");
    expect_result(cuGraphInstantiateWithFlags(&exec, graph, 0), 0, "an executable graph");
    expect_result(cuGraphLaunch(exec, stream), 0, "a graph");
    const int result = cuStreamSynchronize(stream);
    expect_result(result, sim::LAUNCH_FAILED, "a graph with a trap");
    expect_words(sentence_of(result), "__trap was called");
}

static int load(const char* text, void** function, std::string& log) {
    constexpr uintptr_t BYTES = 256;
    char buffer[BYTES] = {};
    int options[] = {sim::JIT_ERROR_LOG, sim::JIT_ERROR_LOG_BYTES};
    void *values[] = {buffer, reinterpret_cast<void*>(BYTES)}, *module = nullptr;
    const int result = cuModuleLoadDataEx(&module, text, 2, options, values);
    log = buffer;
    if (result == 0) expect_result(cuModuleGetFunction(function, module, "turn_waited_for"), 0, "a kernel of a module");
    return result;
}

static void check_modules() {
    fresh_context(0);
    const Floats x(counted(ELEMENTS)), y(ELEMENTS);
    void* function = nullptr;
    std::string log;
    expect_result(load("// PTX\n.target sm_90\n", &function, log), 0, "a module for this card");
    expect_result(launch_early(function, nullptr, x.address, y.address, ELEMENTS), 0, "a kernel that waits");
    expect_result(load("// PTX\n.target sm_75\n", &function, log), 0, "a module for older cards");
    const int result = launch_early(function, nullptr, x.address, y.address, ELEMENTS);
    expect_result(result, sim::INVALID_VALUE, "a kernel that cannot wait");
    expect_words(sentence_of(result), "is of a module for sm_75, which cannot wait for it");
    expect_result(load("// PTX\n.target sm_100\n", &function, log), sim::INVALID_PTX, "a module for later cards");
    expect_words(log, ".target sm_100: the simulated card is sm_90");
}

void check_turns() {
    check_chains();
    check_told("turn_not_waited_for", ELEMENTS);
    check_told("turn_waited_for_in_part", ELEMENTS - 1);
    check_behind_failure();
    check_modules();
}
