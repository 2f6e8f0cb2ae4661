// What streams do, one after the other, and what graphs hold.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <variant>
#include <vector>

#include "api.h"
#include "lanes.h"

namespace sim {

class Capture;

// One recording of an event: done once the stream has come to it. Within a capture, what of it comes before.
class Record {
public:
    void finish() {
        {
            const std::lock_guard lock(mutex);
            time = std::chrono::steady_clock::now();
            done = true;
        }
        changed.notify_all();
    }
    void wait() {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return done; });
    }
    bool is_done() {
        const std::lock_guard lock(mutex);
        return done;
    }

    std::chrono::steady_clock::time_point time;
    std::shared_ptr<Capture> capture;
    // Nodes of each line of the capture that come before.
    std::vector<unsigned> clock;

private:
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
};

struct KernelNode {
    const Kernel* kernel;
    dim3 grid, size;
    size_t shared_bytes;
    std::vector<unsigned char> arguments;
    // Whether its blocks may begin before the kernel before it has ended.
    bool early = false;
};

// Memory of cards is named by its address, which tells the card; what no card has is the host's.
struct CopyNode {
    uintptr_t target, source;
    size_t bytes;
    // Bytes of the host that were taken when the copy was asked for, instead of `source`.
    std::shared_ptr<std::vector<unsigned char>> taken;
    bool target_on_card, source_on_card;
};

struct SetNode {
    uintptr_t target;
    uint32_t value;
    size_t value_bytes, count;
};

struct HostNode {
    HostFunction function;
    void* data;
};

struct FreeNode {
    uintptr_t address;
};

struct RecordNode {
    std::shared_ptr<Record> record;
};

struct WaitNode {
    std::shared_ptr<Record> record;
};

struct Part;

// All parts of a graph, as they were when it was launched.
struct GraphNode {
    std::shared_ptr<const std::vector<Part>> parts;
};

typedef std::variant<KernelNode, CopyNode, SetNode, HostNode, FreeNode, RecordNode, WaitNode, GraphNode> Node;

// A node of a graph. Nodes of one stream of the capture make a line; `clock` says how many of each line come before.
struct Part {
    Node node;
    unsigned line;
    std::vector<unsigned> clock;
};

}  // namespace sim
