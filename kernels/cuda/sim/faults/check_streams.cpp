// Streams and events: what is asked for runs behind the caller, in the order of its stream; only events, and the
// context's own stream, keep order between streams.

#include <atomic>
#include <chrono>
#include <thread>

#include "check.h"

constexpr int NOT_READY = 600, INVALID_HANDLE = 400, INVALID_VALUE = 1;
constexpr unsigned BLOCKING = 0, NON_BLOCKING = 1;

static void* new_stream(unsigned flags) {
    void* stream = nullptr;
    expect_result(cuStreamCreate(&stream, flags), 0, "a stream");
    return stream;
}

static void* new_event() {
    void* event = nullptr;
    expect_result(cuEventCreate(&event, 0), 0, "an event");
    return event;
}

// Holds a stream until it is opened, so that nothing depends on how fast anybody is.
class Gate {
public:
    explicit Gate(void* stream) {
        const auto wait = [](void* open) { static_cast<std::atomic<bool>*>(open)->wait(false); };
        expect_result(cuLaunchHostFunc(stream, wait, &is_open), 0, "a function of the host");
    }
    ~Gate() {
        open();
        expect_result(cuCtxSynchronize(), 0, "all work behind a gate");
    }
    Gate(const Gate&) = delete;
    void open() {
        is_open = true;
        is_open.notify_all();
    }

private:
    std::atomic<bool> is_open = false;
};

static void sleep_a_little(void*) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

static void check_behind() {
    fresh_context(0);
    void *const stream = new_stream(NON_BLOCKING), *const first = new_event(), *const last = new_event();
    const Floats x(counted(100)), y(100);
    expect_result(cuEventQuery(first), 0, "an event that was never recorded");
    expect_result(cuEventRecord(first, stream), 0, "an event");
    expect_result(cuLaunchHostFunc(stream, sleep_a_little, nullptr), 0, "a function of the host");
    Gate gate(stream);
    expect_result(launch("twice_right", 1, 128, 0, stream, x.address, y.address, 100), 0, "a launch");
    expect_result(cuEventRecord(last, stream), 0, "an event");
    expect_result(cuStreamQuery(stream), NOT_READY, "a stream at work");
    expect_result(cuEventQuery(last), NOT_READY, "an event of a stream at work");
    float milliseconds = 0;
    expect_result(cuEventElapsedTime_v2(&milliseconds, first, last), NOT_READY, "a time that has not come");
    gate.open();
    expect_result(cuEventSynchronize(last), 0, "waiting for an event");
    expect_result(cuEventElapsedTime_v2(&milliseconds, first, last), 0, "a time");
    expect(milliseconds >= 20.0f && milliseconds < 20000.0f, "a time of " + std::to_string(milliseconds) + " ms");
    expect_result(cuStreamSynchronize(stream), 0, "a stream's work");
    expect(y.read()[99] == 200.0f, "a kernel of a stream computes something else");
    expect_result(cuEventElapsedTime_v2(&milliseconds, first, new_event()), INVALID_HANDLE, "a time of an event that was never recorded");
    expect_result(cuStreamDestroy_v2(stream), 0, "a stream's end");
    expect_result(cuStreamSynchronize(stream), INVALID_HANDLE, "a stream behind its end");
}

// y of one stream is x of another, which waits for it or not.
static void check_events_order() {
    for (const bool waits : {true, false}) {
        fresh_context(0);
        void *const first = new_stream(NON_BLOCKING), *const second = new_stream(NON_BLOCKING), *const event = new_event();
        const Floats x(counted(100)), y(std::vector<float>(100, 0.0f)), z(100);
        Gate gate(first);
        expect_result(launch("twice_right", 1, 128, 0, first, x.address, y.address, 100), 0, "a launch");
        expect_result(cuEventRecord(event, first), 0, "an event");
        if (waits) expect_result(cuStreamWaitEvent(second, event, 0), 0, "waiting for an event");
        expect_result(launch("twice_right", 1, 128, 0, second, y.address, z.address, 100), 0, "a launch");
        if (!waits) expect_result(cuStreamSynchronize(second), 0, "a stream that does not wait");
        gate.open();
        expect_result(cuCtxSynchronize(), 0, "all work");
        expect(z.read()[99] == (waits ? 400.0f : 0.0f), waits ? "a stream does not wait for an event" : "a stream that should wait is not found");
    }
}

// The context's own stream waits for blocking streams and they for it, not for others.
static void check_own_stream() {
    for (const unsigned flags : {BLOCKING, NON_BLOCKING}) {
        fresh_context(0);
        void* const stream = new_stream(flags);
        const Floats x(counted(100)), y(std::vector<float>(100, 0.0f)), z(100);
        Gate first(stream);
        expect_result(launch("twice_right", 1, 128, 0, stream, x.address, y.address, 100), 0, "a launch");
        expect_result(launch("twice_right", 1, 128, 0, nullptr, y.address, z.address, 100), 0, "a launch");
        if (flags == NON_BLOCKING) expect_result(cuStreamSynchronize(nullptr), 0, "the context's own stream");
        first.open();
        expect_result(cuCtxSynchronize(), 0, "all work");
        expect(z.read()[99] == (flags == BLOCKING ? 400.0f : 0.0f), "the context's own stream keeps another order");
        Gate second(nullptr);
        expect_result(launch("twice_right", 1, 128, 0, nullptr, x.address, y.address, 50), 0, "a launch");
        expect_result(cuMemsetD32Async(y.address, 0, 100, stream), 0, "a memset");
        if (flags == NON_BLOCKING) expect_result(cuStreamSynchronize(stream), 0, "a stream");
        second.open();
        expect_result(cuCtxSynchronize(), 0, "all work");
        expect(y.read()[49] == (flags == BLOCKING ? 0.0f : 100.0f), "a stream keeps another order with the context's own");
    }
}

// Memory of the host is read and written late where it is pinned, at once where it is not.
static void check_host_memory() {
    fresh_context(0);
    void *const stream = new_stream(NON_BLOCKING), *pinned = nullptr;
    const Floats x(100);
    expect_result(cuMemHostAlloc(&pinned, 400, 0), 0, "pinned memory");
    auto* const values = static_cast<float*>(pinned);
    for (int i = 0; i < 100; i++) values[i] = 1.0f;
    Gate first(stream);
    expect_result(cuMemcpyHtoDAsync_v2(x.address, pinned, 400, stream), 0, "a copy");
    values[7] = 2.0f;
    first.open();
    expect_result(cuStreamSynchronize(stream), 0, "its end");
    expect(x.read()[7] == 2.0f, "pinned memory that is written too early is not found");

    std::vector<float> pageable(100, 3.0f);
    Gate second(stream);
    expect_result(cuMemcpyHtoDAsync_v2(x.address, pageable.data(), 400, stream), 0, "a copy");
    pageable[7] = 4.0f;
    expect_result(cuMemcpyDtoHAsync_v2(pinned, x.address, 400, stream), 0, "a copy");
    expect(values[7] != 3.0f, "a copy to pinned memory does not run behind");
    second.open();
    expect_result(cuStreamSynchronize(stream), 0, "its end");
    expect(values[7] == 3.0f, "memory that is not pinned is read late");
    expect_result(cuLaunchHostFunc(stream, sleep_a_little, nullptr), 0, "a function of the host");
    expect_result(cuMemcpyDtoHAsync_v2(pageable.data(), x.address, 400, stream), 0, "a copy");
    expect(pageable[7] == 3.0f, "a copy to memory that is not pinned runs behind");
    expect_result(cuMemFreeHost(pinned), 0, "a free");
    expect_result(cuMemFreeHost(pinned), INVALID_VALUE, "a second free");
}

static void check_free_in_order() {
    fresh_context(0);
    void* const stream = new_stream(NON_BLOCKING);
    uintptr_t address = 0;
    const Floats x(counted(100));
    expect_result(cuMemAlloc_v2(&address, 400), 0, "an allocation");
    expect_result(cuLaunchHostFunc(stream, sleep_a_little, nullptr), 0, "a function of the host");
    expect_result(launch("twice_right", 1, 128, 0, stream, x.address, address, 100), 0, "a launch");
    expect_result(cuMemFreeAsync(address, stream), 0, "a free behind it");
    expect_result(cuStreamSynchronize(stream), 0, "both");
    expect_result(cuMemsetD8Async(address, 0, 400, stream), INVALID_VALUE, "a memset of freed memory");
}

void check_streams() {
    check_behind();
    check_events_order();
    check_own_stream();
    check_host_memory();
    check_free_in_order();
}
