// Streams: each has an OS thread that does behind the caller what was asked for, in order, now and then a little late.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "block.h"
#include "graph.h"
#include "launch.h"
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
    // `next` comes behind the node, if it is known already.
    void execute(const Node& node, const Node* next);
    void execute_graph(const std::vector<Part>& parts);
    void compute(const KernelNode& node, const KernelNode* next);
    std::unique_ptr<Launch> make_launch(const KernelNode& node);
    // Begins a block of the next kernel, if it may begin before its turn.
    void begin_early(const KernelNode* next);
    // Ends what has begun and whose turn never comes.
    void drop_begun();
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
    // They take turns: the next but one may begin while the last block of another is not done.
    std::unique_ptr<Forerunner> forerunners[2];
    unsigned forerunner = 0;
    // The next kernel, of which a block has begun.
    std::unique_ptr<Launch> begun;
    std::thread thread;
};

// Why a call that waits, or that no capture can hold, is forbidden now; such a call spoils the capture.
Result forbidden_by_capture();

}  // namespace sim
