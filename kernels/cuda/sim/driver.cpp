// The entry points of the driver library: start, cards, contexts, errors.

#include "driver.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "launch.h"

namespace sim {

// Thread-local variables have other initial values than zero: find_static_shared in block.cpp.
struct Said {
    Result result;
    const char* sentence;
};
static thread_local Said said = {NOT_FOUND, ""};
static const char NO_CONTEXT = 0;
static thread_local const void* current = &NO_CONTEXT;

Result say(Result result, const std::string& sentence) {
    said = {result, kept(sentence)};
    return result;
}

Here here() {
    if (!Machine::the().started()) return {nullptr, NOT_INITIALIZED};
    auto context = Machine::the().context(current);
    if (!context) return {nullptr, current == &NO_CONTEXT ? INVALID_CONTEXT : CONTEXT_IS_DESTROYED};
    const Result error = context->error();
    return {std::move(context), error};
}

void set_current(const Context* context) { current = context == nullptr ? static_cast<const void*>(&NO_CONTEXT) : context; }

template <class T>
static Handles<T>& handles() {
    static Handles<T>& handles = *new Handles<T>;
    return handles;
}
Handles<Stream>& streams() { return handles<Stream>(); }
Handles<Event>& events() { return handles<Event>(); }
Handles<Graph>& graphs() { return handles<Graph>(); }
Handles<GraphExec>& graph_execs() { return handles<GraphExec>(); }
Handles<Module>& modules() { return handles<Module>(); }
Handles<Function>& functions() { return handles<Function>(); }

int capability() {
    static const int found = [] {
        const char* const wanted = std::getenv("TRUEUP_CUDA_SIM_CAPABILITY");
        const int number = wanted == nullptr ? 90 : std::atoi(wanted);
        return number >= 50 && number < 200 ? number : 0;
    }();
    return found;
}

std::shared_ptr<Stream> find_stream(Context& context, void* handle) {
    if (handle == nullptr || reinterpret_cast<uintptr_t>(handle) == STREAM_LEGACY) return context.own_stream();
    auto stream = streams().find(handle);
    const auto all = context.all_streams();
    return std::find(all.begin(), all.end(), stream) == all.end() ? nullptr : stream;
}

struct Words {
    Result result;
    const char* name;
    const char* sentence;
};

constexpr Words WORDS[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "an argument lies outside of what it may be"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "the card has not as much memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "cuInit was not called"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "there is no card"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "there is no card of that number"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "the kernels cannot be used"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "this thread has no context"},
    {INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a module is for other cards"},
    {PEER_ACCESS_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "a card is no peer of itself"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "a handle names nothing that is there"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "nothing has that name"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "what was asked for is not done yet"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "a kernel touched memory that is not its own"},
    {PEER_ACCESS_ALREADY_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "that card's memory may be used already"},
    {PEER_ACCESS_NOT_ENABLED, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "that card's memory may not be used anyway"},
    {CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "this thread's context was released by all"},
    {HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "that memory is pinned already"},
    {HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "that memory is not pinned"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "a kernel failed"},
    {NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "that is not allowed now"},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "the simulator does not imitate that"},
    {STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "that is not allowed while a stream is captured"},
    {STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "an earlier call has spoilt the capture"},
    {STREAM_CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "no capture begins, or ends, with that stream"},
    {STREAM_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "what other streams of the capture do was not waited for"},
    {STREAM_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "a captured stream waits for an event from outside of its capture"},
    {CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT", "an event of a capture cannot be waited for outside of it"},
    {STREAM_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "another thread began the capture"},
    {GRAPH_EXEC_UPDATE_FAILURE, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "the graph differs in more than parameters"},
};

static const Words* words_of(int result) {
    for (const Words& words : WORDS) {
        if (words.result == result) return &words;
    }
    return nullptr;
}

// The error that stays in this thread's context, or in any.
static const char* sentence_of_context(int result) {
    const char* sentence = nullptr;
    for (const auto& context : Machine::the().contexts()) {
        if (context->error() == result && (sentence == nullptr || context.get() == current)) sentence = context->sentence();
    }
    return sentence;
}

}  // namespace sim

using namespace sim;

// Says how many cards there are, how many bytes of memory each has, and what orders and delays depend on. Before
// cuInit; CUDA_ERROR_NOT_PERMITTED where it was called before with something else.
EXPORTED int trueup_sim_configure(int cards, uint64_t memory_bytes, uint64_t seed) { return Machine::the().configure({cards, memory_bytes, seed}); }

EXPORTED int cuInit(unsigned flags) {
    if (flags != 0) return INVALID_VALUE;
    if (kernel_twice() != nullptr) return say(INVALID_IMAGE, std::string("two kernels are called ") + kernel_twice());
    if (capability() == 0) return say(INVALID_VALUE, "TRUEUP_CUDA_SIM_CAPABILITY is no generation of cards, like 75 or 90");
    return Machine::the().start();
}

EXPORTED int cuDriverGetVersion(int* version) {
    *version = 13000;
    return SUCCESS;
}

EXPORTED int cuGetErrorName(int result, const char** name) {
    const Words* const words = words_of(result);
    *name = words == nullptr ? nullptr : words->name;
    return words == nullptr ? INVALID_VALUE : SUCCESS;
}

EXPORTED int cuGetErrorString(int result, const char** sentence) {
    const Words* const words = words_of(result);
    *sentence = words == nullptr ? nullptr : words->sentence;
    if (words == nullptr) return INVALID_VALUE;
    if (const char* of_context = sentence_of_context(result)) {
        *sentence = of_context;
    } else if (said.result == result && said.sentence[0] != 0) {
        *sentence = said.sentence;
    }
    return SUCCESS;
}

static Result check_card(int card) {
    if (!Machine::the().started()) return NOT_INITIALIZED;
    return card >= 0 && card < Machine::the().configuration().cards ? SUCCESS : INVALID_DEVICE;
}

EXPORTED int cuDeviceGetCount(int* count) {
    if (!Machine::the().started()) return NOT_INITIALIZED;
    *count = Machine::the().configuration().cards;
    return SUCCESS;
}

EXPORTED int cuDeviceGet(int* card, int number) {
    *card = number;
    return check_card(number);
}

EXPORTED int cuDeviceGetName(char* name, int bytes, int card) {
    if (const Result result = check_card(card); result != SUCCESS) return result;
    if (bytes <= 0) return INVALID_VALUE;
    std::snprintf(name, (size_t)bytes, "simulated card %d", card);
    return SUCCESS;
}

EXPORTED int cuDeviceGetUuid_v2(unsigned char* uuid, int card) {
    std::memset(uuid, 0, 16);
    std::memcpy(uuid, "trueup-sim", 10);
    uuid[15] = (unsigned char)card;
    return check_card(card);
}
EXPORTED int cuDeviceGetUuid(unsigned char* uuid, int card) { return cuDeviceGetUuid_v2(uuid, card); }

EXPORTED int cuDeviceTotalMem_v2(size_t* bytes, int card) {
    *bytes = Machine::the().configuration().memory_bytes;
    return check_card(card);
}

// CUdevice_attribute, by number.
static constexpr int ATTRIBUTES[][2] = {
    {1, BLOCK_THREADS_MAX}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535}, {7, 65535}, {8, BLOCK_SHARED_BYTES}, {9, 65536},
    {10, LANES}, {11, 2147483647}, {12, 65536}, {13, 1000000}, {14, 512}, {16, MULTIPROCESSORS}, {19, 1}, {31, 1}, {34, 0}, {36, 1000000},
    {37, 256}, {38, 4 << 20}, {39, MULTIPROCESSOR_THREADS}, {40, 2}, {41, 1}, {78, 1}, {79, 1},
    {80, 1}, {81, MULTIPROCESSOR_SHARED_BYTES}, {82, 65536}, {97, BLOCK_SHARED_BYTES_MAX}, {106, MULTIPROCESSOR_BLOCKS},
    {111, BLOCK_SHARED_BYTES_TAKEN}, {115, 1},
};
static constexpr int ATTRIBUTE_PCI_BUS = 33, ATTRIBUTE_MAJOR = 75, ATTRIBUTE_MINOR = 76;
static constexpr int ATTRIBUTE_MAX = 160;

EXPORTED int cuDeviceGetAttribute(int* value, int attribute, int card) {
    *value = attribute == ATTRIBUTE_PCI_BUS ? card + 1 : 0;
    if (attribute == ATTRIBUTE_MAJOR) *value = capability() / 10;
    if (attribute == ATTRIBUTE_MINOR) *value = capability() % 10;
    for (const auto& [number, of_card] : ATTRIBUTES) {
        if (number == attribute) *value = of_card;
    }
    return attribute < 1 || attribute > ATTRIBUTE_MAX ? INVALID_VALUE : check_card(card);
}

EXPORTED int cuDevicePrimaryCtxRetain(void** context, int card) {
    if (const Result result = check_card(card); result != SUCCESS) return result;
    *context = Machine::the().retain(card).get();
    return SUCCESS;
}

EXPORTED int cuDevicePrimaryCtxRelease_v2(int card) {
    const Result result = check_card(card);
    return result == SUCCESS ? Machine::the().release(card, false) : result;
}

EXPORTED int cuDevicePrimaryCtxReset_v2(int card) {
    const Result result = check_card(card);
    return result == SUCCESS ? Machine::the().release(card, true) : result;
}

EXPORTED int cuCtxSetCurrent(void* context) {
    if (context != nullptr && !Machine::the().context(context)) return INVALID_CONTEXT;
    set_current(static_cast<const Context*>(context));
    return SUCCESS;
}

EXPORTED int cuCtxGetCurrent(void** context) {
    *context = Machine::the().context(current).get();
    return Machine::the().started() ? SUCCESS : NOT_INITIALIZED;
}

EXPORTED int cuCtxGetDevice(int* card) {
    const auto [context, result] = here();
    if (!context) return result;
    *card = context->card;
    return SUCCESS;
}

EXPORTED int cuCtxSynchronize() {
    const auto [context, result] = here();
    if (result != SUCCESS) return result;
    const Result forbidden = forbidden_by_capture();
    return forbidden != SUCCESS ? forbidden : context->wait();
}

EXPORTED int cuDeviceCanAccessPeer(int* can, int card, int peer) {
    *can = card != peer;
    const Result result = check_card(card);
    return result == SUCCESS ? check_card(peer) : result;
}

EXPORTED int cuCtxEnablePeerAccess(void* peer, unsigned flags) {
    const auto [context, result] = here();
    if (result != SUCCESS) return result;
    const auto other = Machine::the().context(peer);
    if (flags != 0) return INVALID_VALUE;
    if (!other) return INVALID_CONTEXT;
    if (other == context) return PEER_ACCESS_UNSUPPORTED;
    const std::lock_guard lock(context->peers_mutex);
    return context->peers.insert(other->card).second ? SUCCESS : PEER_ACCESS_ALREADY_ENABLED;
}

EXPORTED int cuCtxDisablePeerAccess(void* peer) {
    const auto [context, result] = here();
    if (result != SUCCESS) return result;
    const auto other = Machine::the().context(peer);
    if (!other) return INVALID_CONTEXT;
    const std::lock_guard lock(context->peers_mutex);
    return context->peers.erase(other->card) == 1 ? SUCCESS : PEER_ACCESS_NOT_ENABLED;
}
