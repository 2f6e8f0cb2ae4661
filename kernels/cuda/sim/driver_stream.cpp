// The entry points of the driver library: streams, events, graphs.

#include <chrono>
#include <cstdlib>
#include <string_view>

#include "driver.h"

using namespace sim;

EXPORTED int cuStreamCreate(void** stream, unsigned flags) {
    const auto [context, result] = here();
    if (result != SUCCESS) return result;
    if (flags > STREAM_NON_BLOCKING) return INVALID_VALUE;
    *stream = streams().add(context->make_stream(flags != STREAM_NON_BLOCKING));
    return SUCCESS;
}

EXPORTED int cuStreamCreateWithPriority(void** stream, unsigned flags, int) { return cuStreamCreate(stream, flags); }

EXPORTED int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    *least = *greatest = 0;
    return here().result;
}

EXPORTED int cuStreamDestroy_v2(void* handle) {
    const auto [context, result] = here();
    if (!context) return result;
    if (!find_stream(*context, handle) || handle == nullptr) return INVALID_HANDLE;
    context->drop_stream(streams().remove(handle));
    return result;
}

// A captured stream's work is not done now: asking for its end spoils the capture.
static Result forbidden_on(const Stream& stream) {
    const auto capture = stream.capture();
    if (!capture) return SUCCESS;
    capture->invalidate();
    return STREAM_CAPTURE_UNSUPPORTED;
}

EXPORTED int cuStreamSynchronize(void* handle) {
    const auto [context, result] = here();
    if (result != SUCCESS) return result;
    const auto stream = find_stream(*context, handle);
    if (!stream) return INVALID_HANDLE;
    if (const Result forbidden = forbidden_on(*stream); forbidden != SUCCESS) return forbidden;
    stream->wait();
    return context->error();
}

EXPORTED int cuStreamQuery(void* handle) {
    const auto [context, result] = here();
    if (result != SUCCESS) return result;
    const auto stream = find_stream(*context, handle);
    if (!stream) return INVALID_HANDLE;
    if (const Result forbidden = forbidden_on(*stream); forbidden != SUCCESS) return forbidden;
    if (!stream->idle()) return NOT_READY;
    return context->error();
}

EXPORTED int cuLaunchHostFunc(void* handle, HostFunction function, void* data) {
    const auto [context, result] = here();
    if (result != SUCCESS) return result;
    const auto stream = find_stream(*context, handle);
    if (!stream) return INVALID_HANDLE;
    return function == nullptr ? INVALID_VALUE : stream->submit(HostNode{function, data});
}

EXPORTED int cuEventCreate(void** event, unsigned flags) {
    constexpr unsigned DISABLE_TIMING = 2;
    const auto [context, result] = here();
    if (result != SUCCESS) return result;
    auto made = std::make_shared<Event>();
    made->context = context.get();
    made->timed = !(flags & DISABLE_TIMING);
    *event = events().add(std::move(made));
    return SUCCESS;
}

EXPORTED int cuEventDestroy_v2(void* handle) { return events().remove(handle) ? SUCCESS : INVALID_HANDLE; }

EXPORTED int cuEventRecord(void* handle, void* stream_handle) {
    const auto [context, result] = here();
    if (result != SUCCESS) return result;
    const auto stream = find_stream(*context, stream_handle);
    const auto event = events().find(handle);
    if (!stream || !event) return INVALID_HANDLE;
    if (event->context != context.get()) return say(INVALID_HANDLE, "an event is recorded on a stream of another context than its own");
    auto record = stream->record();
    const std::lock_guard lock(event->mutex);
    event->record = std::move(record);
    return SUCCESS;
}
EXPORTED int cuEventRecordWithFlags(void* event, void* stream, unsigned) { return cuEventRecord(event, stream); }

static std::shared_ptr<Record> record_of(Event& event) {
    const std::lock_guard lock(event.mutex);
    return event.record;
}

EXPORTED int cuEventQuery(void* handle) {
    const auto event = events().find(handle);
    if (!event) return INVALID_HANDLE;
    const auto record = record_of(*event);
    if (!record) return SUCCESS;
    if (record->capture) return CAPTURED_EVENT;
    if (!record->is_done()) return NOT_READY;
    const auto context = Machine::the().context(event->context);
    return context ? context->error() : CONTEXT_IS_DESTROYED;
}

EXPORTED int cuEventSynchronize(void* handle) {
    const auto event = events().find(handle);
    if (!event) return INVALID_HANDLE;
    const auto record = record_of(*event);
    if (!record) return SUCCESS;
    if (record->capture) return CAPTURED_EVENT;
    record->wait();
    const auto context = Machine::the().context(event->context);
    return context ? context->error() : CONTEXT_IS_DESTROYED;
}

EXPORTED int cuEventElapsedTime_v2(float* milliseconds, void* first, void* second) {
    const auto from = events().find(first), to = events().find(second);
    if (!from || !to || !from->timed || !to->timed) return INVALID_HANDLE;
    const auto begin = record_of(*from), end = record_of(*to);
    if (!begin || !end || begin->capture || end->capture) return say(INVALID_HANDLE, "the time of an event that was not recorded");
    if (!begin->is_done() || !end->is_done()) return NOT_READY;
    *milliseconds = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
    return SUCCESS;
}
EXPORTED int cuEventElapsedTime(float* milliseconds, void* first, void* second) { return cuEventElapsedTime_v2(milliseconds, first, second); }

// The event may be another context's.
EXPORTED int cuStreamWaitEvent(void* stream_handle, void* handle, unsigned) {
    const auto [context, result] = here();
    if (result != SUCCESS) return result;
    const auto stream = find_stream(*context, stream_handle);
    const auto event = events().find(handle);
    if (!stream || !event) return INVALID_HANDLE;
    const auto record = record_of(*event);
    return record ? stream->wait_for(record) : SUCCESS;
}

EXPORTED int cuStreamBeginCapture_v2(void* handle, int mode) {
    const auto [context, result] = here();
    if (result != SUCCESS) return result;
    const auto stream = find_stream(*context, handle);
    if (!stream) return INVALID_HANDLE;
    return mode < CAPTURE_GLOBAL || mode > CAPTURE_RELAXED ? INVALID_VALUE : stream->begin_capture((CaptureMode)mode);
}

EXPORTED int cuStreamEndCapture(void* handle, void** graph) {
    const auto [context, result] = here();
    if (!context) return result;
    *graph = nullptr;
    const auto stream = find_stream(*context, handle);
    if (!stream) return INVALID_HANDLE;
    Result ended;
    auto made = stream->end_capture(ended);
    if (made) *graph = graphs().add(std::move(made));
    return ended;
}

EXPORTED int cuStreamIsCapturing(void* handle, int* status) {
    const auto [context, result] = here();
    if (result != SUCCESS) return result;
    const auto stream = find_stream(*context, handle);
    if (!stream) return INVALID_HANDLE;
    const auto capture = stream->capture();
    *status = !capture ? CAPTURE_NONE : capture->is_invalid() ? CAPTURE_INVALIDATED : CAPTURE_ACTIVE;
    return SUCCESS;
}

EXPORTED int cuGraphDestroy(void* handle) { return graphs().remove(handle) ? SUCCESS : INVALID_HANDLE; }

EXPORTED int cuGraphGetNodes(void* handle, void** nodes, size_t* count) {
    const auto graph = graphs().find(handle);
    if (!graph) return INVALID_HANDLE;
    for (size_t i = 0; nodes != nullptr && i < *count; i++) nodes[i] = i < graph->nodes->size() ? &(*graph->nodes)[i] : nullptr;
    if (nodes == nullptr || *count > graph->nodes->size()) *count = graph->nodes->size();
    return SUCCESS;
}

EXPORTED int cuGraphInstantiateWithFlags(void** exec, void* handle, unsigned long long) {
    const auto graph = graphs().find(handle);
    if (!graph) return INVALID_HANDLE;
    // A card that is full, for those who want to see what happens then.
    const char* const refused = std::getenv("TRUEUP_CUDA_SIM_REFUSES");
    if (refused != nullptr && std::string_view(refused) == "graphs") return OUT_OF_MEMORY;
    auto made = std::make_shared<GraphExec>();
    made->parts = graph->parts;
    made->nodes = graph->nodes;
    *exec = graph_execs().add(std::move(made));
    return SUCCESS;
}

EXPORTED int cuGraphExecDestroy(void* handle) { return graph_execs().remove(handle) ? SUCCESS : INVALID_HANDLE; }

EXPORTED int cuGraphUpload(void* handle, void*) { return graph_execs().find(handle) ? here().result : INVALID_HANDLE; }

EXPORTED int cuGraphLaunch(void* handle, void* stream_handle) {
    const auto [context, result] = here();
    if (result != SUCCESS) return result;
    const auto stream = find_stream(*context, stream_handle);
    const auto exec = graph_execs().find(handle);
    if (!stream || !exec) return INVALID_HANDLE;
    const std::lock_guard lock(exec->mutex);
    return stream->submit(GraphNode{exec->parts});
}

EXPORTED int cuGraphExecUpdate_v2(void* handle, void* graph_handle, UpdateInfo* info) {
    const auto exec = graph_execs().find(handle);
    const auto graph = graphs().find(graph_handle);
    if (!exec || !graph) return INVALID_HANDLE;
    const std::lock_guard lock(exec->mutex);
    size_t number;
    *info = {compare(*exec->parts, *graph->parts, number), nullptr, nullptr};
    if (info->result != UPDATE_SUCCESS) {
        if (number < graph->nodes->size()) info->node_from = &(*graph->nodes)[number];
        return GRAPH_EXEC_UPDATE_FAILURE;
    }
    exec->parts = graph->parts;
    return SUCCESS;
}

// The node is one of the graph that the executable was made of.
EXPORTED int cuGraphExecKernelNodeSetParams_v2(void* handle, void* node, const KernelNodeParams* wanted) {
    const auto exec = graph_execs().find(handle);
    if (!exec) return INVALID_HANDLE;
    const std::lock_guard lock(exec->mutex);
    const size_t number = exec->number_of(node);
    if (number == exec->parts->size() || !std::holds_alternative<KernelNode>((*exec->parts)[number].node)) {
        return say(INVALID_VALUE, "no kernel's node of the graph that was made executable");
    }
    KernelNode made;
    const Result result = make_kernel_node(wanted->function, {wanted->grid_x, wanted->grid_y, wanted->grid_z},
                                           {wanted->block_x, wanted->block_y, wanted->block_z}, wanted->shared_bytes, wanted->arguments,
                                           wanted->extra, made);
    if (result != SUCCESS) return result;
    auto parts = std::make_shared<std::vector<Part>>(*exec->parts);
    // What a kernel may begin before is no parameter.
    made.early = std::get<KernelNode>((*parts)[number].node).early;
    (*parts)[number].node = std::move(made);
    exec->parts = std::move(parts);
    return SUCCESS;
}
