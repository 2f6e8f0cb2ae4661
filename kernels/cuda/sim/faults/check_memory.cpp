// Memory of cards: fresh bytes, room, guard zones, what is freed twice or too early, limits of launches, copies between
// cards.

#include <cstring>

#include "check.h"

constexpr int INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, NOT_FOUND = 500, ILLEGAL_ADDRESS = 700;

static void expect_said(int result, const std::string& words) {
    const std::string sentence = sentence_of(result);
    expect(sentence.find(words) != std::string::npos, "\"" + words + "\" is not in " + sentence);
}

static void check_fresh() {
    fresh_context(0);
    const Floats fresh(1000);
    bool unwritten = true;
    for (const float value : fresh.read()) {
        uint32_t bits;
        std::memcpy(&bits, &value, 4);
        unwritten &= bits == 0xffffffff;
    }
    expect(unwritten, "fresh memory is not 0xff");
    expect(fresh.address % 256 == 0, "memory does not begin at a multiple of 256");
}

static void check_room() {
    fresh_context(0);
    size_t free = 0, all = 0;
    uintptr_t first = 0, second = 0;
    expect_result(cuMemAlloc_v2(&first, CARD_BYTES * 3 / 4), 0, "three quarters of a card");
    expect_result(cuMemGetInfo_v2(&free, &all), 0, "asking for room");
    expect(all == CARD_BYTES && free == CARD_BYTES / 4, "a card's room is not told");
    expect_result(cuMemAlloc_v2(&second, CARD_BYTES / 4 + 1), OUT_OF_MEMORY, "more than there is");
    expect_said(OUT_OF_MEMORY, std::to_string(free) + " are free");
    expect_result(cuMemAlloc_v2(&second, SIZE_MAX - 100), OUT_OF_MEMORY, "more than can be");
    expect_result(cuMemAlloc_v2(&second, 0), INVALID_VALUE, "an allocation of nothing");
    expect_result(cuMemFree_v2(first), 0, "a free");
    expect_result(cuMemAlloc_v2(&second, CARD_BYTES), 0, "all of a card");
    expect_result(cuMemFree_v2(second), 0, "a free");
}

static void check_lifetimes() {
    fresh_context(0);
    uintptr_t freed = 0, used = 0;
    float value = 1;
    expect_result(cuMemAlloc_v2(&freed, 4096), 0, "an allocation");
    expect_result(cuMemFree_v2(freed), 0, "a free");
    expect_result(cuMemFree_v2(freed), INVALID_VALUE, "a second free");
    expect_said(INVALID_VALUE, "was freed before");
    expect_result(cuMemcpyHtoD_v2(freed, &value, 4), INVALID_VALUE, "a copy to freed memory");
    expect_result(cuMemAlloc_v2(&used, 1000), 0, "an allocation");
    expect(used != freed, "freed addresses are used again at once");
    expect_result(cuMemcpyHtoD_v2(used + 998, &value, 4), INVALID_VALUE, "a copy past the end");
    expect_result(cuMemFree_v2(used + 256), INVALID_VALUE, "a free of a middle");
    expect_result(cuMemcpyHtoD_v2(1234, &value, 4), INVALID_VALUE, "a copy to nowhere");

    const Floats x(counted(256));
    expect_result(launch("twice_right", 1, 256, 0, nullptr, x.address, freed, 256), 0, "a launch on freed memory");
    expect_result(cuCtxSynchronize(), ILLEGAL_ADDRESS, "a kernel that writes freed memory");
    expect_said(ILLEGAL_ADDRESS, "4096 bytes that were freed");
    expect_result(cuMemAlloc_v2(&used, 1000), ILLEGAL_ADDRESS, "an allocation behind an error that stays");
}

static void check_limits() {
    fresh_context(0);
    const Floats x(counted(64)), y(64);
    const auto shaped = [&](unsigned blocks_y, unsigned threads_x, unsigned threads_z, unsigned shared_bytes) {
        uintptr_t addresses[] = {x.address, y.address};
        int n = 64;
        void* arguments[] = {&addresses[0], &addresses[1], &n};
        return cuLaunchKernel(function_named("twice_right"), 1, blocks_y, 1, threads_x, 1, threads_z, shared_bytes, nullptr, arguments, nullptr);
    };
    expect_result(shaped(1, 64, 1, 48 * 1024), 0, "a launch within all limits");
    expect_result(shaped(65536, 64, 1, 0), INVALID_VALUE, "a grid that is too high");
    expect_result(shaped(0, 64, 1, 0), INVALID_VALUE, "a grid of nothing");
    expect_result(shaped(1, 1025, 1, 0), INVALID_VALUE, "a block that is too wide");
    expect_result(shaped(1, 64, 32, 0), INVALID_VALUE, "a block of too many threads");
    expect_result(shaped(1, 1, 65, 0), INVALID_VALUE, "a block that is too deep");
    expect_result(shaped(1, 64, 1, 48 * 1024 + 1), INVALID_VALUE, "too much shared memory");
    expect_said(INVALID_VALUE, "kernel twice_right: 49153 bytes of dynamic shared memory");

    void *const function = function_named("twice_right"), *module = nullptr, *unknown = nullptr;
    constexpr int DYNAMIC_SHARED_MAX = 8;
    expect_result(cuFuncSetAttribute(function, DYNAMIC_SHARED_MAX, 100 * 1024), 0, "raising shared memory");
    expect_result(cuFuncSetAttribute(function, DYNAMIC_SHARED_MAX, 200 * 1024), INVALID_VALUE, "raising shared memory too far");
    uintptr_t addresses[] = {x.address, y.address};
    int n = 64, blocks = 0;
    void* arguments[] = {&addresses[0], &addresses[1], &n};
    expect_result(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 100 * 1024, nullptr, arguments, nullptr), 0, "a launch with more shared memory");
    expect_result(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 256, 20 * 1024), 0, "occupancy");
    expect(blocks == 7, "occupancy is " + std::to_string(blocks));
    expect_result(cuModuleLoadData(&module, ""), 0, "a module");
    expect_result(cuModuleGetFunction(&unknown, module, "no_such_kernel"), NOT_FOUND, "an unknown kernel");
    expect_result(cuCtxSynchronize(), 0, "the end of all launches");
}

static void check_peers() {
    void* const second = fresh_context(1);
    const Floats there(counted(500));
    void* const first = fresh_context(0);
    expect_result(cuCtxEnablePeerAccess(second, 0), 0, "peer access");
    expect_result(cuCtxEnablePeerAccess(second, 0), 704, "peer access again");
    expect_result(cuCtxEnablePeerAccess(first, 0), 217, "a card's own memory as a peer's");
    const Floats here(500);
    void* stream = nullptr;
    expect_result(cuStreamCreate(&stream, 1), 0, "a stream");
    expect_result(cuMemcpyPeerAsync(here.address, first, there.address, second, 2000, stream), 0, "a copy between cards");
    expect_result(cuStreamSynchronize(stream), 0, "its end");
    expect(here.read() == counted(500), "a copy between cards brings something else");
    const int exchanged = cuMemcpyPeerAsync(here.address, second, there.address, first, 2000, stream);
    expect_result(exchanged, INVALID_VALUE, "a copy between cards that are exchanged");
    expect_result(cuMemcpyPeerAsync(here.address, nullptr, there.address, second, 2000, stream), INVALID_CONTEXT, "a copy to no card");
    expect_result(cuStreamDestroy_v2(stream), 0, "a stream's end");
}

void check_memory() {
    check_fresh();
    check_room();
    check_lifetimes();
    check_limits();
    check_peers();
}
