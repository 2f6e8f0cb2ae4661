// Stands in for NCCL: all-gathers between the cards of one process, as the device asks for them; all else is refused,
// and so is what a card would wait for without end. A library of its own, which copies in the simulator's streams: each
// rank begins when all have come, and goes on when all have what is its.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#define EXPORTED extern "C" __attribute__((visibility("default")))

extern "C" {
int cuDevicePrimaryCtxRetain(void** context, int card);
int cuDevicePrimaryCtxRelease_v2(int card);
int cuCtxGetCurrent(void** context);
int cuCtxSetCurrent(void* context);
int cuStreamIsCapturing(void* stream, int* status);
int cuEventCreate(void** event, unsigned flags);
int cuEventDestroy_v2(void* event);
int cuEventRecord(void* event, void* stream);
int cuStreamWaitEvent(void* stream, void* event, unsigned flags);
int cuMemcpyPeerAsync(uintptr_t target, void* target_context, uintptr_t source, void* source_context, size_t bytes, void* stream);
}

namespace {

enum Result { SUCCESS = 0, UNHANDLED_CUDA_ERROR = 1, INVALID_ARGUMENT = 4, INVALID_USAGE = 5 };

constexpr int VERSION = 22703;

// Bytes of an element, by ncclDataType_t.
constexpr size_t ELEMENT_BYTES[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

// Cards that communicate. The last communicator that is freed gives their contexts back.
struct Clique {
    std::vector<int> cards;
    std::vector<void*> contexts;
    size_t users;
};

struct Communicator {
    std::shared_ptr<Clique> clique;
    size_t rank;
    bool freed;

    std::string name() const { return "rank " + std::to_string(rank) + " of " + std::to_string(clique->cards.size()); }
};

struct Gather {
    Communicator* communicator;
    uintptr_t source, target;
    size_t count;
    int type;
    void* stream;

    size_t bytes() const { return count * ELEMENT_BYTES[type]; }
};

// What a thread asks for between ncclGroupStart and ncclGroupEnd.
struct Group {
    int depth = 0;
    Result failed = SUCCESS;
    std::vector<Gather> gathers;
};

struct Said {
    Result result = SUCCESS;
    std::string sentence;
};

thread_local Group group;
thread_local Said said;

// Keeps what is to be said of a result until this thread asks. A group with a call that failed does nothing.
Result say(Result result, const std::string& sentence) {
    said = {result, sentence};
    if (group.depth > 0) group.failed = result;
    return result;
}

std::mutex mutex;

// They are kept when they are freed, so that whoever uses one then is told.
std::vector<std::unique_ptr<Communicator>>& communicators() {
    static auto& communicators = *new std::vector<std::unique_ptr<Communicator>>;
    return communicators;
}

Result check(const void* communicator) {
    const std::lock_guard lock(mutex);
    for (const auto& known : communicators()) {
        if (known.get() != communicator) continue;
        return known->freed ? say(INVALID_ARGUMENT, "the communicator of " + known->name() + " was freed") : SUCCESS;
    }
    return say(INVALID_ARGUMENT, "a communicator that was never made");
}

// The thread's context as it was, when this goes.
class Kept {
public:
    Kept() { cuCtxGetCurrent(&context); }
    ~Kept() { cuCtxSetCurrent(context); }
    Kept(const Kept&) = delete;

private:
    void* context = nullptr;
};

bool overlap(uintptr_t first, size_t first_bytes, uintptr_t second, size_t second_bytes) {
    return first < second + second_bytes && second < first + first_bytes;
}

// What one rank asks for, beside what it shares with the others.
Result check_rank(const Gather& gather, const Gather& first) {
    const Communicator& own = *gather.communicator;
    if (gather.count != first.count || gather.type != first.type) {
        return say(INVALID_USAGE, own.name() + " gives " + std::to_string(gather.count) + " elements of type " + std::to_string(gather.type) + ", another " +
                                      std::to_string(first.count) + " of type " + std::to_string(first.type) + ": all give as many of one type");
    }
    const uintptr_t place = gather.target + own.rank * gather.bytes();
    const size_t whole = gather.bytes() * own.clique->cards.size();
    if (gather.source != place && overlap(gather.source, gather.bytes(), gather.target, whole)) {
        return say(INVALID_USAGE, "what " + own.name() + " gives overlaps what it gets, and does not lie in its own place there");
    }
    int capturing = 0;
    const int found = cuCtxSetCurrent(own.clique->contexts[own.rank]) == 0 ? cuStreamIsCapturing(gather.stream, &capturing) : -1;
    if (found != 0) return say(INVALID_USAGE, own.name() + " names a stream that is not of card " + std::to_string(own.clique->cards[own.rank]));
    return capturing == 0 ? SUCCESS : say(INVALID_USAGE, "all-gathers in graphs are not imitated");
}

// Every stream waits until all have come here.
bool meet(const std::vector<Gather>& ranks) {
    std::vector<void*> events(ranks.size(), nullptr);
    bool good = true;
    for (size_t rank = 0; rank < ranks.size(); rank++) {
        good = good && cuCtxSetCurrent(ranks[rank].communicator->clique->contexts[rank]) == 0 && cuEventCreate(&events[rank], 2) == 0 &&
               cuEventRecord(events[rank], ranks[rank].stream) == 0;
    }
    for (size_t rank = 0; good && rank < ranks.size(); rank++) {
        good = cuCtxSetCurrent(ranks[rank].communicator->clique->contexts[rank]) == 0;
        for (size_t other = 0; good && other < ranks.size(); other++) {
            good = other == rank || cuStreamWaitEvent(ranks[rank].stream, events[other], 0) == 0;
        }
    }
    for (void* event : events) {
        if (event != nullptr) cuEventDestroy_v2(event);
    }
    return good;
}

bool copy(const std::vector<Gather>& ranks) {
    const std::vector<void*>& contexts = ranks.front().communicator->clique->contexts;
    for (size_t rank = 0; rank < ranks.size(); rank++) {
        if (cuCtxSetCurrent(contexts[rank]) != 0) return false;
        for (size_t other = 0; other < ranks.size(); other++) {
            const Gather& from = ranks[other];
            const uintptr_t target = ranks[rank].target + other * from.bytes();
            if (target == from.source) continue;
            if (cuMemcpyPeerAsync(target, contexts[rank], from.source, contexts[other], from.bytes(), ranks[rank].stream) != 0) return false;
        }
    }
    return true;
}

// One all-gather of the cards of a clique.
Result run(const std::vector<Gather>& asked) {
    const Clique& clique = *asked.front().communicator->clique;
    std::vector<Gather> ranks(clique.cards.size(), Gather{});
    for (const Gather& gather : asked) {
        Gather& place = ranks[gather.communicator->rank];
        if (place.communicator != nullptr) return say(INVALID_USAGE, gather.communicator->name() + " gathers twice in one group, which is not imitated");
        place = gather;
    }
    for (size_t rank = 0; rank < ranks.size(); rank++) {
        if (ranks[rank].communicator == nullptr) {
            const std::string missing = "rank " + std::to_string(rank) + " of " + std::to_string(ranks.size());
            return say(INVALID_USAGE, missing + " is missing: the others would wait for it for ever");
        }
        if (const Result found = check(ranks[rank].communicator); found != SUCCESS) return found;
    }
    const Kept kept;
    for (const Gather& gather : ranks) {
        if (const Result found = check_rank(gather, ranks.front()); found != SUCCESS) return found;
    }
    if (ranks.front().bytes() == 0) return SUCCESS;
    const bool good = meet(ranks) && copy(ranks) && meet(ranks);
    return good ? SUCCESS : say(UNHANDLED_CUDA_ERROR, "bytes that are gathered do not lie on the cards of their ranks, or a card has failed");
}

void free_clique(const Clique& clique) {
    for (const int card : clique.cards) cuDevicePrimaryCtxRelease_v2(card);
}

}  // namespace

EXPORTED int ncclGetVersion(int* version) {
    *version = VERSION;
    return SUCCESS;
}

EXPORTED const char* ncclGetErrorString(int result) {
    if (result == SUCCESS) return "no error";
    return result == said.result ? said.sentence.c_str() : "an error of another thread";
}

EXPORTED int ncclCommInitAll(void** made, int count, const int* cards) {
    if (count < 1) return say(INVALID_ARGUMENT, "no cards that communicate");
    auto clique = std::make_shared<Clique>(Clique{{}, {}, (size_t)count});
    for (int rank = 0; rank < count; rank++) {
        const int card = cards == nullptr ? rank : cards[rank];
        Result found = SUCCESS;
        for (const int other : clique->cards) {
            if (other == card) found = say(INVALID_USAGE, "card " + std::to_string(card) + " is named twice");
        }
        void* context = nullptr;
        if (found == SUCCESS && cuDevicePrimaryCtxRetain(&context, card) != 0) {
            found = say(UNHANDLED_CUDA_ERROR, "there is no card " + std::to_string(card));
        }
        if (found != SUCCESS) {
            free_clique(*clique);
            return found;
        }
        clique->cards.push_back(card);
        clique->contexts.push_back(context);
    }
    const std::lock_guard lock(mutex);
    for (size_t rank = 0; rank < (size_t)count; rank++) {
        communicators().push_back(std::make_unique<Communicator>(Communicator{clique, rank, false}));
        made[rank] = communicators().back().get();
    }
    return SUCCESS;
}

EXPORTED int ncclCommDestroy(void* communicator) {
    if (const Result found = check(communicator); found != SUCCESS) return found;
    auto& own = *static_cast<Communicator*>(communicator);
    const std::lock_guard lock(mutex);
    own.freed = true;
    if (--own.clique->users == 0) free_clique(*own.clique);
    return SUCCESS;
}

EXPORTED int ncclCommGetAsyncError(void* communicator, int* error) {
    *error = SUCCESS;
    return check(communicator);
}

EXPORTED int ncclGroupStart() {
    group.depth++;
    return SUCCESS;
}

EXPORTED int ncclAllGather(const void* source, void* target, size_t count, int type, void* communicator, void* stream) {
    if (const Result found = check(communicator); found != SUCCESS) return found;
    auto& own = *static_cast<Communicator*>(communicator);
    if (type < 0 || (size_t)type >= std::size(ELEMENT_BYTES)) return say(INVALID_ARGUMENT, "there is no type " + std::to_string(type));
    if (group.depth == 0 && own.clique->cards.size() > 1) {
        return say(INVALID_USAGE, own.name() + " gathers outside of a group: its thread would wait for the other ranks, for which it should ask itself");
    }
    const Gather gather{&own, reinterpret_cast<uintptr_t>(source), reinterpret_cast<uintptr_t>(target), count, type, stream};
    if (group.depth == 0) return run({gather});
    group.gathers.push_back(gather);
    return SUCCESS;
}

EXPORTED int ncclGroupEnd() {
    if (group.depth == 0) return say(INVALID_USAGE, "a group ends that did not begin");
    if (--group.depth > 0) return SUCCESS;
    const Group ending = std::move(group);
    group = Group{};
    if (ending.failed != SUCCESS) return ending.failed;
    std::vector<Gather> left = ending.gathers;
    while (!left.empty()) {
        std::vector<Gather> asked, others;
        for (const Gather& gather : left) {
            const bool own = gather.communicator->clique == left.front().communicator->clique;
            (own ? asked : others).push_back(gather);
        }
        if (const Result result = run(asked); result != SUCCESS) return result;
        left = std::move(others);
    }
    return SUCCESS;
}
