// Asynchronous copies of the lanes of a block: each lane's in groups, done as late as a card may do them, or in other
// blocks as early.
#pragma once

#include <cstring>
#include <deque>
#include <vector>

#include "lanes.h"

namespace sim {

class Copies {
public:
    static constexpr size_t BYTES = 16;

    // At the begin of a block, whose copies are done as soon as they are asked for, or when they are waited for.
    void begin(bool early) {
        at_once = early;
        if (!used) return;
        for (auto& own : lanes) own = {};
        used = false;
    }
    void add(unsigned lane, void* target, const void* source) {
        if (at_once) return run({target, source});
        if (lanes.empty()) lanes.resize(BLOCK_THREADS_MAX);
        used = true;
        lanes[lane].open.push_back({target, source});
    }
    void commit(unsigned lane) {
        if (lanes.empty()) return;
        lanes[lane].groups.push_back(std::move(lanes[lane].open));
        lanes[lane].open.clear();
    }
    // Does all groups but the last ones.
    void finish(unsigned lane, size_t but) {
        if (lanes.empty()) return;
        auto& groups = lanes[lane].groups;
        for (; groups.size() > but; groups.pop_front()) {
            for (const Copy& copy : groups.front()) run(copy);
        }
    }
    // At the end of a lane: cards do what is under way.
    void end(unsigned lane) {
        if (!used) return;
        commit(lane);
        finish(lane, 0);
    }

private:
    struct Copy {
        void* target;
        // Null for zeros.
        const void* source;
    };
    struct Own {
        std::vector<Copy> open;
        std::deque<std::vector<Copy>> groups;
    };
    static void run(const Copy& copy) {
        if (copy.source == nullptr) {
            std::memset(copy.target, 0, BYTES);
        } else {
            std::memcpy(copy.target, copy.source, BYTES);
        }
    }

    std::vector<Own> lanes;
    bool used = false, at_once = false;
};

}  // namespace sim
