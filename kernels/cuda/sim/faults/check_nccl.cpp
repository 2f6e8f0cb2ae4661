// All-gathers between cards: both have all, in the order of streams; what no NCCL does, or does only after waiting for
// ever, is told in a sentence.

#include "check.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <thread>

extern "C" {
int ncclGetVersion(int* version);
const char* ncclGetErrorString(int result);
int ncclCommInitAll(void** communicators, int count, const int* cards);
int ncclCommDestroy(void* communicator);
int ncclCommGetAsyncError(void* communicator, int* error);
int ncclGroupStart();
int ncclAllGather(const void* source, void* target, size_t count, int type, void* communicator, void* stream);
int ncclGroupEnd();
}

constexpr int INT8 = 0, F32 = 7, INVALID_ARGUMENT = 4, INVALID_USAGE = 5;
constexpr size_t HALF = 32;

// Two cards with a stream, room for two halves of floats, and a communicator each.
struct Two {
    Two() {
        for (int card : {0, 1}) contexts[card] = fresh_context(card);
        for (int card : {0, 1}) {
            use(card);
            expect_result(cuStreamCreate(&streams[card], 1), 0, "a stream");
            rooms[card] = new Floats(std::vector<float>(2 * HALF, -1.0f));
            const std::vector<float> own = counted(HALF, card == 0 ? 1.0f : (float)HALF + 1.0f);
            expect_result(cuMemcpyHtoD_v2(place(card), own.data(), HALF * sizeof(float)), 0, "a half");
        }
        const int cards[] = {0, 1};
        expect(ncclCommInitAll(communicators, 2, cards) == 0, "communicators of two cards are made");
    }
    ~Two() {
        for (int card : {0, 1}) {
            use(card);
            delete rooms[card];
        }
    }
    void use(int card) { expect_result(cuCtxSetCurrent(contexts[card]), 0, "a context"); }
    // Where a card's own half lies.
    uintptr_t place(int card) { return rooms[card]->address + card * HALF * sizeof(float); }
    int gather(int card, size_t count = HALF * sizeof(float), int type = INT8) { return gather_on(card, streams[card], place(card), count, type); }
    int gather_on(int card, void* stream, uintptr_t source, size_t count = HALF * sizeof(float), int type = INT8) {
        return ncclAllGather(reinterpret_cast<const void*>(source), reinterpret_cast<void*>(rooms[card]->address), count, type, communicators[card], stream);
    }
    void expect_gathered(bool gathered, const std::string& what) {
        for (int card : {0, 1}) {
            use(card);
            expect_result(cuCtxSynchronize(), 0, "all work");
            std::vector<float> all = counted(2 * HALF);
            if (!gathered) std::fill_n(all.begin() + (card == 0 ? HALF : 0), HALF, -1.0f);
            expect(rooms[card]->read() == all, what + ": card " + std::to_string(card));
        }
    }

    void *contexts[2], *streams[2], *communicators[2];
    Floats* rooms[2];
};

static void check_gathered() {
    for (const int type : {INT8, F32}) {
        Two two;
        const size_t count = type == INT8 ? HALF * sizeof(float) : HALF;
        expect(ncclGroupStart() == 0 && two.gather(1, count, type) == 0 && two.gather(0, count, type) == 0 && ncclGroupEnd() == 0, "an all-gather");
        int error = -1;
        expect(ncclCommGetAsyncError(two.communicators[0], &error) == 0 && error == 0, "an all-gather has no error behind it");
        two.expect_gathered(true, "gathered as type " + std::to_string(type));
        for (void* communicator : two.communicators) expect(ncclCommDestroy(communicator) == 0, "a communicator is freed");
    }
    int version = 0;
    expect(ncclGetVersion(&version) == 0 && version / 10000 == 2, "a version 2");
}

static void sleep_a_little(void*) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

// What a card computes before is gathered, and what it writes behind it is not; the thread's context stays.
static void check_order() {
    Two two;
    two.use(1);
    expect_result(cuLaunchHostFunc(two.streams[1], sleep_a_little, nullptr), 0, "a function of the host");
    expect_result(cuMemsetD32Async(two.place(1), 0, HALF, two.streams[1]), 0, "a memset before");
    expect(ncclGroupStart() == 0 && two.gather(0) == 0 && two.gather(1) == 0 && ncclGroupEnd() == 0, "an all-gather");
    expect_result(cuMemsetD32Async(two.place(1), 0x3f800000, HALF, two.streams[1]), 0, "a memset behind, in the context that was the thread's");
    two.use(0);
    expect_result(cuCtxSynchronize(), 0, "all work");
    expect(two.rooms[0]->read()[HALF] == 0.0f, "a half is gathered before it is computed, or after it is overwritten");
}

// A misuse, and what its sentence has.
static void check_refused(const std::string& words, int expected, const std::function<int(Two&)>& misuse) {
    Two two;
    const int result = misuse(two);
    const std::string sentence = ncclGetErrorString(result);
    const bool told = sentence.find(words) != std::string::npos;
    expect(result == expected && told, "a misuse that should say '" + words + "' gives " + std::to_string(result) + ": " + sentence);
    two.expect_gathered(false, "a group with a misuse does nothing (" + words + ")");
    // The next one is not hurt.
    expect(ncclGroupStart() == 0, "a group begins");
    const bool all = two.gather(0) == 0 && two.gather(1) == 0;
    const bool freed = words == "was freed";
    expect(freed != (all && ncclGroupEnd() == 0), "an all-gather behind a misuse (" + words + ")");
    if (!freed) {
        two.expect_gathered(true, "behind a misuse (" + words + ")");
    } else {
        ncclGroupEnd();
    }
}

// The end of a group, whatever its calls gave.
static int ended(std::initializer_list<int>) { return ncclGroupEnd(); }

void check_nccl() {
    check_gathered();
    check_order();
    check_refused("all give as many", INVALID_USAGE, [](Two& two) {
        ncclGroupStart();
        return ended({two.gather(0), two.gather(1, HALF)});
    });
    check_refused("of one type", INVALID_USAGE, [](Two& two) {
        ncclGroupStart();
        return ended({two.gather(0, HALF), two.gather(1, HALF, F32)});
    });
    check_refused("rank 1 of 2 is missing", INVALID_USAGE, [](Two& two) {
        ncclGroupStart();
        return ended({two.gather(0)});
    });
    check_refused("twice in one group", INVALID_USAGE, [](Two& two) {
        ncclGroupStart();
        return ended({two.gather(0), two.gather(0)});
    });
    check_refused("outside of a group", INVALID_USAGE, [](Two& two) { return two.gather(0); });
    check_refused("did not begin", INVALID_USAGE, [](Two&) { return ncclGroupEnd(); });
    check_refused("a stream that is not of card 1", INVALID_USAGE, [](Two& two) {
        ncclGroupStart();
        return ended({two.gather(0), two.gather_on(1, two.streams[0], two.place(1))});
    });
    check_refused("do not lie on the cards", 1, [](Two& two) {
        ncclGroupStart();
        return ended({two.gather_on(0, two.streams[0], two.rooms[1]->address), two.gather(1)});
    });
    check_refused("overlaps what it gets", INVALID_USAGE, [](Two& two) {
        ncclGroupStart();
        return ended({two.gather(0), two.gather_on(1, two.streams[1], two.place(1) - 4)});
    });
    check_refused("there is no type 10", INVALID_ARGUMENT, [](Two& two) {
        ncclGroupStart();
        const int refused = two.gather(0, HALF, 10);
        return ended({}) == refused ? refused : -1;
    });
    check_refused("was freed", INVALID_ARGUMENT, [](Two& two) {
        for (void* communicator : two.communicators) ncclCommDestroy(communicator);
        ncclGroupStart();
        return ended({two.gather(0), two.gather(1)});
    });
    check_refused("was freed", INVALID_ARGUMENT, [](Two& two) {
        for (void* communicator : two.communicators) ncclCommDestroy(communicator);
        return ncclCommDestroy(two.communicators[1]);
    });
    check_refused("never made", INVALID_ARGUMENT, [](Two& two) { return ncclCommDestroy(&two); });
    check_refused("named twice", INVALID_USAGE, [](Two&) {
        void* communicators[2];
        const int cards[] = {1, 1};
        return ncclCommInitAll(communicators, 2, cards);
    });
    check_refused("there is no card 7", 1, [](Two&) {
        void* communicators[2];
        const int cards[] = {0, 7};
        return ncclCommInitAll(communicators, 2, cards);
    });
}
