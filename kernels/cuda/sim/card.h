// Cards, their one context each, and the errors that stay.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "api.h"
#include "memory.h"

namespace sim {

class Stream;

// What is imitated; set before the driver starts.
struct Configuration {
    int cards = 1;
    size_t memory_bytes = size_t{4} << 30;
    uint64_t seed = 1;
};

// Words kept for as long as the process lives, since callers keep pointers to them.
const char* kept(const std::string& words);

// The primary context of a card. An error of a kernel stays until it is released by all.
class Context {
public:
    Context(int card, const Configuration& configuration);
    ~Context();

    // The first error stays.
    void fail(Result result, const std::string& sentence);
    Result error() const { return failed; }
    const char* sentence() const { return words; }

    // A stream that runs behind; `blocking` ones keep order with the context's own.
    std::shared_ptr<Stream> make_stream(bool blocking);
    void drop_stream(const std::shared_ptr<Stream>& stream);
    std::vector<std::shared_ptr<Stream>> all_streams();
    // The context's own stream: what is asked for without one.
    const std::shared_ptr<Stream>& own_stream() const { return own; }
    // Waits for all streams.
    Result wait();

    const int card;
    Memory memory;
    // Cards whose memory kernels of this one may use.
    std::set<int> peers;
    std::mutex peers_mutex;

private:
    const uint64_t seed;
    std::atomic<Result> failed = SUCCESS;
    std::atomic<const char*> words = nullptr;
    std::mutex mutex;
    std::vector<std::shared_ptr<Stream>> streams;
    uint64_t streams_made = 0;
    std::shared_ptr<Stream> own;
};

// Objects that callers know by their address.
template <class T>
class Handles {
public:
    void* add(std::shared_ptr<T> object) {
        const std::lock_guard lock(mutex);
        void* const handle = object.get();
        objects.emplace(handle, std::move(object));
        return handle;
    }
    std::shared_ptr<T> find(const void* handle) const {
        const std::lock_guard lock(mutex);
        const auto found = objects.find(handle);
        return found == objects.end() ? nullptr : found->second;
    }
    std::shared_ptr<T> remove(const void* handle) {
        const std::lock_guard lock(mutex);
        const auto found = objects.find(handle);
        if (found == objects.end()) return nullptr;
        std::shared_ptr<T> object = std::move(found->second);
        objects.erase(found);
        return object;
    }

private:
    mutable std::mutex mutex;
    std::unordered_map<const void*, std::shared_ptr<T>> objects;
};

// All cards of the process.
class Machine {
public:
    static Machine& the();

    Result configure(const Configuration& wanted);
    Result start();
    bool started() const { return is_started; }
    const Configuration& configuration() const { return wanted; }

    // Another user of a card's context; it is made for the first.
    std::shared_ptr<Context> retain(int card);
    // One user less; the context ends with the last.
    Result release(int card, bool all);
    // The context of that handle, if it lives.
    std::shared_ptr<Context> context(const void* handle) const;
    std::shared_ptr<Context> context_of_card(int card) const;
    // The context in whose memory an address lies, or null.
    std::shared_ptr<Context> owner(uintptr_t address, size_t bytes) const;
    std::vector<std::shared_ptr<Context>> contexts() const;

private:
    mutable std::mutex mutex;
    Configuration wanted;
    bool is_started = false;
    struct Use {
        std::shared_ptr<Context> context;
        unsigned users = 0;
    };
    std::vector<Use> uses;
};

}  // namespace sim
