// Graphs: captured from one stream and from two, launched again, changed, and captures that are spoilt.

#include <chrono>
#include <thread>

#include "../api.h"
#include "check.h"

using sim::KernelNodeParams;
using sim::UpdateInfo;

static void* new_stream() {
    void* stream = nullptr;
    expect_result(cuStreamCreate(&stream, sim::STREAM_NON_BLOCKING), 0, "a stream");
    return stream;
}

static void* new_event() {
    void* event = nullptr;
    expect_result(cuEventCreate(&event, 0), 0, "an event");
    return event;
}

static void begin(void* stream) { expect_result(cuStreamBeginCapture_v2(stream, sim::CAPTURE_GLOBAL), 0, "a capture"); }

static void* end(void* stream) {
    void* graph = nullptr;
    expect_result(cuStreamEndCapture(stream, &graph), 0, "a capture's end");
    return graph;
}

static void* executable(void* graph) {
    void* exec = nullptr;
    expect_result(cuGraphInstantiateWithFlags(&exec, graph, 0), 0, "an executable graph");
    return exec;
}

static int twice(const Floats& x, const Floats& y, void* stream) {
    return launch("twice_right", 1, 128, 0, stream, x.address, y.address, (int)x.count);
}

// z = 4 x, captured on one stream, launched for two x.
static void check_replay() {
    fresh_context(0);
    void* const stream = new_stream();
    const Floats x(counted(100)), y(std::vector<float>(100, 0.0f)), z(100);
    begin(stream);
    int status = 0;
    expect_result(cuStreamIsCapturing(stream, &status), 0, "asking for a capture");
    expect(status == sim::CAPTURE_ACTIVE, "a capture is not told");
    expect_result(twice(x, y, stream), 0, "a captured launch");
    expect_result(twice(y, z, stream), 0, "a captured launch");
    void* const graph = end(stream);
    expect(y.read()[9] == 0.0f, "a captured kernel runs");
    void* const exec = executable(graph);
    size_t count = 0;
    expect_result(cuGraphGetNodes(graph, nullptr, &count), 0, "a graph's nodes");
    expect(count == 2, "a graph of " + std::to_string(count) + " nodes");
    for (const float first : {1.0f, 50.0f}) {
        const std::vector<float> values = counted(100, first);
        expect_result(cuMemcpyHtoD_v2(x.address, values.data(), 400), 0, "a copy");
        expect_result(cuGraphLaunch(exec, stream), 0, "a graph");
        expect_result(cuStreamSynchronize(stream), 0, "its end");
        expect(z.read()[9] == 4.0f * (first + 9.0f), "a graph computes something else");
    }
    expect_result(cuGraphDestroy(graph), 0, "a graph's end");
    expect_result(cuGraphExecDestroy(exec), 0, "a graph's end");
    expect_result(cuGraphLaunch(exec, stream), sim::INVALID_HANDLE, "a graph behind its end");
}

// x is doubled by the first stream, its double by the second; the first waits for that, and doubles once more.
static void capture_fork(void* stream, void* other, const Floats& x, const Floats& y, const Floats& z, const Floats& last, bool fork_waits) {
    void *const forked = new_event(), *const joined = new_event();
    begin(stream);
    expect_result(cuEventRecord(forked, stream), 0, "an event");
    if (!fork_waits) expect_result(cuStreamWaitEvent(other, forked, 0), 0, "a fork");
    expect_result(twice(x, y, stream), 0, "a captured launch");
    expect_result(cuEventRecord(forked, stream), 0, "an event");
    if (fork_waits) expect_result(cuStreamWaitEvent(other, forked, 0), 0, "a fork");
    expect_result(twice(y, z, other), 0, "a captured launch");
    expect_result(cuEventRecord(joined, other), 0, "an event");
    expect_result(cuEventQuery(joined), sim::CAPTURED_EVENT, "asking for a captured event");
    expect_result(cuStreamWaitEvent(stream, joined, 0), 0, "a join");
    expect_result(twice(z, last, stream), 0, "a captured launch");
}

static void check_fork() {
    for (const bool waits : {true, false}) {
        fresh_context(0);
        void *const stream = new_stream(), *const other = new_stream();
        const Floats x(counted(100)), y(std::vector<float>(100, 0.0f)), z(100), last(100);
        capture_fork(stream, other, x, y, z, last, waits);
        void* const exec = executable(end(stream));
        bool all_right = true;
        for (int i = 0; i < 20; i++) {
            expect_result(cuMemsetD32Async(y.address, 0, 100, stream), 0, "a memset");
            expect_result(cuGraphLaunch(exec, stream), 0, "a graph");
            expect_result(cuStreamSynchronize(stream), 0, "its end");
            all_right &= last.read()[99] == 800.0f;
        }
        expect(all_right == waits, waits ? "a graph of two streams computes something else" : "a fork that does not wait is not found");
    }
}

static void check_unjoined() {
    fresh_context(0);
    void *const stream = new_stream(), *const other = new_stream(), *const event = new_event();
    const Floats x(counted(100)), y(100);
    begin(stream);
    expect_result(cuEventRecord(event, stream), 0, "an event");
    expect_result(cuStreamWaitEvent(other, event, 0), 0, "a fork");
    expect_result(twice(x, y, other), 0, "a captured launch");
    void* graph = nullptr;
    expect_result(cuStreamEndCapture(stream, &graph), sim::STREAM_CAPTURE_UNJOINED, "a capture without a join");
    expect_result(cuStreamSynchronize(other), 0, "a stream behind a capture");
}

static void check_spoilt() {
    fresh_context(0);
    void *const stream = new_stream(), *graph = nullptr;
    const Floats x(counted(100)), y(100);
    uintptr_t address = 0;
    begin(stream);
    expect_result(cuMemAlloc_v2(&address, 100), sim::STREAM_CAPTURE_UNSUPPORTED, "an allocation during a capture");
    expect_result(twice(x, y, stream), sim::STREAM_CAPTURE_INVALIDATED, "a launch in a spoilt capture");
    expect_result(cuStreamEndCapture(stream, &graph), sim::STREAM_CAPTURE_INVALIDATED, "a spoilt capture's end");
    begin(stream);
    expect_result(cuStreamSynchronize(stream), sim::STREAM_CAPTURE_UNSUPPORTED, "waiting for a captured stream");
    expect_result(cuStreamEndCapture(stream, &graph), sim::STREAM_CAPTURE_INVALIDATED, "a spoilt capture's end");
    expect_result(cuStreamEndCapture(stream, &graph), sim::STREAM_CAPTURE_UNMATCHED, "a capture's end without a begin");
    begin(stream);
    int in_other_thread = 0;
    std::thread([&] { in_other_thread = cuStreamEndCapture(stream, &graph); }).join();
    expect_result(in_other_thread, sim::INVALID_CONTEXT, "a capture's end by a thread without a context");
    expect(end(stream) != nullptr, "an empty graph");
}

// An executable graph takes the parameters of another one of the same form, and those of single nodes.
static void check_update() {
    fresh_context(0);
    void* const stream = new_stream();
    const Floats x(counted(100)), other_x(counted(100, 1000.0f)), y(100), z(100);
    const auto capture_twice = [&](const Floats& from, bool also) {
        begin(stream);
        expect_result(twice(from, y, stream), 0, "a captured launch");
        if (also) expect_result(twice(y, z, stream), 0, "a captured launch");
        return end(stream);
    };
    const auto run = [&](void* exec) {
        expect_result(cuGraphLaunch(exec, stream), 0, "a graph");
        expect_result(cuStreamSynchronize(stream), 0, "its end");
        return y.read()[0];
    };
    void *const graph = capture_twice(x, false), *const exec = executable(graph);
    expect(run(exec) == 2.0f, "a graph computes something else");
    UpdateInfo info = {};
    expect_result(cuGraphExecUpdate_v2(exec, capture_twice(other_x, false), &info), 0, "an update");
    expect(run(exec) == 2000.0f, "an update changes nothing");
    expect_result(cuGraphExecUpdate_v2(exec, capture_twice(x, true), &info), sim::GRAPH_EXEC_UPDATE_FAILURE, "an update by another form");
    expect(info.result == sim::UPDATE_TOPOLOGY_CHANGED, "an update by another form is not told");

    void* node = nullptr;
    size_t count = 1;
    expect_result(cuGraphGetNodes(graph, &node, &count), 0, "a graph's nodes");
    uintptr_t addresses[] = {x.address, y.address};
    int n = 100;
    void* arguments[] = {&addresses[0], &addresses[1], &n};
    KernelNodeParams wanted = {function_named("twice_right"), 1, 1, 1, 128, 1, 1, 0, arguments, nullptr, nullptr, nullptr};
    expect_result(cuGraphExecKernelNodeSetParams_v2(exec, node, &wanted), 0, "a node's parameters");
    expect(run(exec) == 2.0f, "a node's parameters change nothing");
    wanted.block_x = 2048;
    expect_result(cuGraphExecKernelNodeSetParams_v2(exec, node, &wanted), sim::INVALID_VALUE, "a node's parameters beyond limits");
}

void check_graphs() {
    check_replay();
    check_fork();
    check_unjoined();
    check_spoilt();
    check_update();
}
