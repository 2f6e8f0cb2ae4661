// Streams: each has an OS thread that does behind the caller what was asked for, in order, now and then a little late.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "block.h"
#include "graph.h"
#include "node.h"

namespace sim {

class Context;

class Stream {
public:
    Stream(Context& context, bool blocking, uint64_t seed);
    ~Stream() { end(); }

    // Adds to what is to be done, or to the capture.
    Result submit(Node node);
    // As submit, of nodes that only order streams, past the capture.
    void push(Node node);
    void wait();
    bool idle();
    // Waits, and ends the thread.
    void end();

    Result begin_capture(CaptureMode mode);
    // Null and why, or the graph.
    std::shared_ptr<Graph> end_capture(Result& result);
    std::shared_ptr<Capture> capture() const;
    // An event's recording on this stream; with the capture's clock within one.
    std::shared_ptr<Record> record();
    // Waits for a recording; one of a capture makes this stream a part of it.
    Result wait_for(const std::shared_ptr<Record>& record);

    Context& context;
    const bool blocking;

private:
    void run();
    void execute(const Node& node);
    void compute(const KernelNode& node);
    void copy(const CopyNode& node);
    void set(const SetNode& node);
    void free(const FreeNode& node);
    void find_thread(Launch& launch, const unsigned char* byte, const std::string& words);
    void dawdle();

    mutable std::mutex mutex;
    std::condition_variable changed;
    std::deque<Node> queue;
    bool busy = false, ended = false;
    uint64_t seed;

    std::shared_ptr<Capture> captured;
    unsigned line = 0;
    std::vector<unsigned> clock;

    // Made for the first kernel.
    std::unique_ptr<Worker> worker;
    std::thread thread;
};

// Why a call that waits, or that no capture can hold, is forbidden now; such a call spoils the capture.
Result forbidden_by_capture();

}  // namespace sim
