// What is asked for while a stream is captured, and graphs made of it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "api.h"
#include "node.h"

namespace sim {

class Stream;

// What a stream asks for from the begin of its capture on, and other streams that wait for it meanwhile. Each stream is
// a line of its own.
class Capture {
public:
    Capture(const Stream* origin, CaptureMode mode) : origin(origin), mode(mode), owner(std::this_thread::get_id()) {}

    unsigned add_line();
    // Adds a node to a line; `clock` is what comes before, and counts the node behind it.
    void add(Node node, unsigned line, std::vector<unsigned>& clock);
    // Whether all nodes come before `clock`.
    bool joined(const std::vector<unsigned>& clock) const;
    // Ends it: no graph comes of it.
    void invalidate() { invalid = true; }
    bool is_invalid() const { return invalid; }
    std::vector<Part> take_parts();

    const Stream* const origin;
    const CaptureMode mode;
    const std::thread::id owner;

private:
    mutable std::mutex mutex;
    std::vector<Part> parts;
    std::vector<unsigned> lines;
    std::atomic<bool> invalid = false;
};

// Later of two clocks, line by line.
void join_clock(std::vector<unsigned>& clock, const std::vector<unsigned>& other);

// A node as callers know it: by its address.
struct NodeHandle {};

// A captured graph. Its handles live as long as anything that was made of it.
struct Graph {
    std::shared_ptr<const std::vector<Part>> parts;
    std::shared_ptr<std::vector<NodeHandle>> nodes;

    explicit Graph(std::vector<Part> all);
};

// One that can be launched.
struct GraphExec {
    std::mutex mutex;
    std::shared_ptr<const std::vector<Part>> parts;
    // Those of the graph that it was made of.
    std::shared_ptr<std::vector<NodeHandle>> nodes;

    // Which node a handle names; their number for none.
    size_t number_of(const void* handle) const;
};

// Calls `visit` for all parts in an order that their clocks allow, which follows from the seed.
template <class Visit>
void in_some_order(const std::vector<Part>& parts, uint64_t seed, Visit visit) {
    std::vector<std::vector<const Part*>> lines;
    for (const Part& part : parts) {
        if (lines.size() <= part.line) lines.resize(part.line + 1);
        lines[part.line].push_back(&part);
    }
    std::vector<unsigned> done(lines.size(), 0);
    const auto ready = [&](size_t line) {
        if (done[line] == lines[line].size()) return false;
        const auto& clock = lines[line][done[line]]->clock;
        for (size_t other = 0; other < clock.size(); other++) {
            if (done[other] < clock[other]) return false;
        }
        return true;
    };
    for (size_t left = parts.size(); left > 0; left--) {
        size_t line = lines.size() == 1 ? 0 : (seed = seed * 6364136223846793005 + 1442695040888963407) >> 33;
        line %= lines.size();
        while (!ready(line)) line = (line + 1) % lines.size();
        visit(*lines[line][done[line]]);
        done[line]++;
    }
}

// Whether `from` differs from `old` in more than parameters.
UpdateResult compare(const std::vector<Part>& old, const std::vector<Part>& from, size_t& number);

NodeType type_of(const Node& node);

}  // namespace sim
