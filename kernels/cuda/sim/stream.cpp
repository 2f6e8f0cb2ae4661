#include "stream.h"

#include <algorithm>
#include <cstring>

#include "card.h"
#include "launch.h"

namespace sim {

// One of so many nodes begins late, by up to so many microseconds.
constexpr uint64_t LATE_ONE_OF = 8;
constexpr uint64_t LATE_MICROSECONDS = 150;

// One of so many kernels that may begin early does.
constexpr uint64_t EARLY_ONE_OF = 2;

// All captures that are under way, for calls that none of them allows.
struct Captures {
    std::mutex mutex;
    std::vector<std::shared_ptr<Capture>> all;
};

static Captures& captures() {
    static Captures& captures = *new Captures;
    return captures;
}

Result forbidden_by_capture() {
    const std::lock_guard lock(captures().mutex);
    for (const auto& capture : captures().all) {
        const bool own = capture->owner == std::this_thread::get_id();
        if (capture->mode == CAPTURE_RELAXED || (capture->mode == CAPTURE_THREAD_LOCAL && !own)) continue;
        capture->invalidate();
        return STREAM_CAPTURE_UNSUPPORTED;
    }
    return SUCCESS;
}

Stream::Stream(Context& context, bool blocking, uint64_t seed) : context(context), blocking(blocking), seed(seed), thread([this] { run(); }) {}

void Stream::end() {
    {
        const std::lock_guard lock(mutex);
        ended = true;
    }
    changed.notify_all();
    if (thread.joinable()) thread.join();
}

void Stream::push(Node node) {
    {
        const std::lock_guard lock(mutex);
        queue.push_back(std::move(node));
    }
    changed.notify_all();
}

// The context's own stream waits for blocking ones and they for it.
static void keep_order(Stream& stream) {
    Stream* const own = stream.context.own_stream().get();
    const auto behind = [](Stream& first, Stream& second) {
        if (first.idle()) return;
        auto record = std::make_shared<Record>();
        first.push(RecordNode{record});
        second.push(WaitNode{record});
    };
    if (own == nullptr || !stream.blocking) return;
    if (&stream != own) {
        behind(*own, stream);
        return;
    }
    for (const auto& other : stream.context.all_streams()) {
        if (other->blocking && other.get() != own) behind(*other, stream);
    }
}

Result Stream::submit(Node node) {
    if (const Result error = context.error(); error != SUCCESS) return error;
    {
        const std::lock_guard lock(mutex);
        if (captured) {
            if (captured->is_invalid()) return STREAM_CAPTURE_INVALIDATED;
            captured->add(std::move(node), line, clock);
            return SUCCESS;
        }
    }
    keep_order(*this);
    push(std::move(node));
    return SUCCESS;
}

void Stream::wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return queue.empty() && !busy; });
}

bool Stream::idle() {
    const std::lock_guard lock(mutex);
    return queue.empty() && !busy;
}

Result Stream::begin_capture(CaptureMode mode) {
    const std::lock_guard lock(mutex);
    if (captured) return STREAM_CAPTURE_UNMATCHED;
    if (context.own_stream().get() == this) return STREAM_CAPTURE_UNSUPPORTED;
    captured = std::make_shared<Capture>(this, mode);
    line = captured->add_line();
    clock.clear();
    const std::lock_guard all_lock(captures().mutex);
    captures().all.push_back(captured);
    return SUCCESS;
}

std::shared_ptr<Graph> Stream::end_capture(Result& result) {
    std::shared_ptr<Capture> ending;
    std::vector<unsigned> reached;
    {
        const std::lock_guard lock(mutex);
        if (!captured || captured->origin != this) {
            result = STREAM_CAPTURE_UNMATCHED;
            return nullptr;
        }
        if (captured->mode != CAPTURE_RELAXED && captured->owner != std::this_thread::get_id()) {
            result = STREAM_CAPTURE_WRONG_THREAD;
            return nullptr;
        }
        ending = captured;
        reached = clock;
    }
    for (const auto& stream : context.all_streams()) {
        const std::lock_guard lock(stream->mutex);
        if (stream->captured == ending) stream->captured = nullptr;
    }
    {
        const std::lock_guard lock(captures().mutex);
        std::erase(captures().all, ending);
    }
    result = ending->is_invalid() ? STREAM_CAPTURE_INVALIDATED : ending->joined(reached) ? SUCCESS : STREAM_CAPTURE_UNJOINED;
    return result == SUCCESS ? std::make_shared<Graph>(ending->take_parts()) : nullptr;
}

std::shared_ptr<Capture> Stream::capture() const {
    const std::lock_guard lock(mutex);
    return captured;
}

std::shared_ptr<Record> Stream::record() {
    auto record = std::make_shared<Record>();
    {
        const std::lock_guard lock(mutex);
        if (captured) {
            record->capture = captured;
            record->clock = clock;
            return record;
        }
    }
    keep_order(*this);
    push(RecordNode{record});
    return record;
}

Result Stream::wait_for(const std::shared_ptr<Record>& record) {
    {
        const std::lock_guard lock(mutex);
        if (captured && record->capture != captured) return captured->invalidate(), STREAM_CAPTURE_ISOLATION;
        if (record->capture) {
            if (record->capture->is_invalid()) return STREAM_CAPTURE_INVALIDATED;
            if (!captured) {
                captured = record->capture;
                line = captured->add_line();
                clock.clear();
            }
            join_clock(clock, record->clock);
            return SUCCESS;
        }
    }
    if (!record->is_done()) push(WaitNode{record});
    return SUCCESS;
}

void Stream::run() {
    std::unique_lock lock(mutex);
    for (;;) {
        changed.wait(lock, [this] { return ended || !queue.empty(); });
        if (queue.empty()) {
            // It belongs to this OS thread.
            worker.reset();
            for (auto& each : forerunners) each.reset();
            return;
        }
        const Node node = std::move(queue.front());
        queue.pop_front();
        // It stays where it is until this thread takes it.
        const Node* const next = queue.empty() ? nullptr : &queue.front();
        busy = true;
        lock.unlock();
        dawdle();
        execute(node, next);
        lock.lock();
        busy = false;
        if (queue.empty()) changed.notify_all();
    }
}

void Stream::dawdle() {
    seed = mixed(seed);
    if (seed % LATE_ONE_OF == 0) std::this_thread::sleep_for(std::chrono::microseconds(seed / LATE_ONE_OF % LATE_MICROSECONDS));
}

// Behind an error nothing is computed any more, but nobody waits in vain.
void Stream::execute(const Node& node, const Node* next) {
    if (const auto* record = std::get_if<RecordNode>(&node)) return record->record->finish();
    if (const auto* wait = std::get_if<WaitNode>(&node)) return wait->record->wait();
    if (context.error() != SUCCESS) return drop_begun();
    if (const auto* kernel = std::get_if<KernelNode>(&node)) compute(*kernel, next == nullptr ? nullptr : std::get_if<KernelNode>(next));
    if (const auto* copied = std::get_if<CopyNode>(&node)) copy(*copied);
    if (const auto* value = std::get_if<SetNode>(&node)) set(*value);
    if (const auto* freed = std::get_if<FreeNode>(&node)) free(*freed);
    if (const auto* host = std::get_if<HostNode>(&node)) host->function(host->data);
    if (const auto* graph = std::get_if<GraphNode>(&node)) execute_graph(*graph->parts);
}

void Stream::execute_graph(const std::vector<Part>& parts) {
    std::vector<const Part*> order;
    in_some_order(parts, mixed(seed), [&](const Part& part) { order.push_back(&part); });
    for (size_t i = 0; i < order.size(); i++) {
        const bool same_line = i + 1 < order.size() && order[i + 1]->line == order[i]->line;
        execute(order[i]->node, same_line ? &order[i + 1]->node : nullptr);
    }
}

std::unique_ptr<Launch> Stream::make_launch(const KernelNode& node) {
    seed = mixed(seed);
    return std::make_unique<Launch>(node.kernel, node.grid, node.size, node.shared_bytes, node.arguments.data(), seed, node.early);
}

void Stream::begin_early(const KernelNode* next) {
    if (next == nullptr || !next->early) return;
    seed = mixed(seed);
    if (seed % EARLY_ONE_OF != 0) return;
    begun = make_launch(*next);
    begun->begun = seed / EARLY_ONE_OF % begun->blocks();
    begun->turn.put_off();
    forerunner = 1 - forerunner;
    if (!forerunners[forerunner]) forerunners[forerunner] = std::make_unique<Forerunner>();
    forerunners[forerunner]->begin(*begun);
}

void Stream::drop_begun() {
    if (!begun) return;
    begun->end({});
    begun->turn.let_come();
    forerunners[forerunner]->finish();
    begun.reset();
}

void Stream::compute(const KernelNode& node, const KernelNode* next) {
    if (!worker) worker = std::make_unique<Worker>();
    Forerunner* const ahead = begun ? forerunners[forerunner].get() : nullptr;
    const std::unique_ptr<Launch> own = begun ? std::move(begun) : make_launch(node);
    Launch& launch = *own;
    begin_early(next);
    launch.turn.let_come();
    run_grid(*worker, launch);
    if (ahead != nullptr) ahead->finish();
    std::string words;
    if (const unsigned char* byte = context.memory.check_guards(words); byte != nullptr && !launch.failed) find_thread(launch, byte, words);
    if (launch.failed) context.fail(launch.fault.address ? ILLEGAL_ADDRESS : LAUNCH_FAILED, launch.fault.sentence);
}

// Computes a grid once more, for the thread that writes a byte of a guard zone: what it computes is lost anyway.
void Stream::find_thread(Launch& launch, const unsigned char* byte, const std::string& words) {
    worker->begin(launch);
    worker->watch(byte, words);
    for (uint64_t block = 0; block < launch.blocks() && !launch.failed; block++) worker->run(launch, block);
    worker->watch(nullptr, "");
    launch.end({true, std::string("kernel ") + launch.kernel->name + " or one beside it writes " + words});
}

void Stream::copy(const CopyNode& node) {
    const auto missing = [&](uintptr_t address, bool on_card) { return on_card && Machine::the().owner(address, node.bytes) == nullptr; };
    if (missing(node.target, node.target_on_card) || missing(node.source, node.source_on_card)) {
        context.fail(ILLEGAL_ADDRESS, "a copy of " + std::to_string(node.bytes) + " bytes touches memory that was freed before its turn came");
        return;
    }
    const void* const source = node.taken ? node.taken->data() : reinterpret_cast<const void*>(node.source);
    std::memmove(reinterpret_cast<void*>(node.target), source, node.bytes);
}

void Stream::set(const SetNode& node) {
    const size_t bytes = node.value_bytes * node.count;
    if (Machine::the().owner(node.target, bytes) == nullptr) {
        context.fail(ILLEGAL_ADDRESS, "a memset of " + std::to_string(bytes) + " bytes touches memory that was freed before its turn came");
        return;
    }
    auto* const target = reinterpret_cast<unsigned char*>(node.target);
    if (node.value_bytes == 1) {
        std::memset(target, (int)node.value, node.count);
        return;
    }
    for (size_t i = 0; i < node.count; i++) std::memcpy(target + i * node.value_bytes, &node.value, node.value_bytes);
}

void Stream::free(const FreeNode& node) {
    bool overrun;
    if (const std::string words = context.memory.free(node.address, overrun); !words.empty()) context.fail(ILLEGAL_ADDRESS, words);
}

}  // namespace sim
