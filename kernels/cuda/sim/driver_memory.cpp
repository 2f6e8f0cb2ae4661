// The entry points of the driver library: memory of cards and of the host, copies.

#include "driver.h"

namespace sim {

static Result allocate(Context& context, uintptr_t* address, size_t bytes) {
    if (bytes == 0) return say(INVALID_VALUE, "an allocation of 0 bytes");
    *address = context.memory.allocate(bytes);
    if (*address != 0) return SUCCESS;
    return say(OUT_OF_MEMORY, std::to_string(bytes) + " bytes asked for, " + std::to_string(context.memory.bytes_free()) + " are free");
}

// Whether bytes lie on a card; why not, in the words of the context's own.
static Result check_on_card(const Context& context, uintptr_t address, size_t bytes) {
    if (Machine::the().owner(address, bytes) != nullptr) return SUCCESS;
    return say(INVALID_VALUE, context.memory.check(address, bytes));
}

// How a copy is asked for.
struct CopyRequest {
    uintptr_t target, source;
    size_t bytes;
    bool target_on_card, source_on_card;
    void* stream;
    // Whether the call returns only when the copy is done.
    bool waits;
};

static Result copy(CopyRequest request) {
    const auto [context, result] = here();
    if (result != SUCCESS) return result;
    const auto stream = find_stream(*context, request.stream);
    if (!stream) return say(INVALID_HANDLE, "a copy names no stream of this context");
    if (request.bytes == 0) return SUCCESS;
    if (request.waits) {
        if (const Result forbidden = forbidden_by_capture(); forbidden != SUCCESS) return forbidden;
    }
    for (const auto& [address, on_card] : {std::pair(request.target, request.target_on_card), std::pair(request.source, request.source_on_card)}) {
        if (!on_card && address == 0) return INVALID_VALUE;
        const Result there = on_card ? check_on_card(*context, address, request.bytes) : SUCCESS;
        if (there != SUCCESS) return there;
    }
    CopyNode node{request.target, request.source, request.bytes, nullptr, request.target_on_card, request.source_on_card};
    const auto pageable = [&](uintptr_t address) { return !pinned().holds(reinterpret_cast<const void*>(address), request.bytes); };
    const bool captured = stream->capture() != nullptr;
    if (!captured && !request.source_on_card && pageable(request.source)) {
        const auto* const bytes = reinterpret_cast<const unsigned char*>(request.source);
        node.taken = std::make_shared<std::vector<unsigned char>>(bytes, bytes + request.bytes);
    }
    const bool waits = request.waits || (!captured && !request.target_on_card && pageable(request.target));
    if (const Result submitted = stream->submit(std::move(node)); submitted != SUCCESS) return submitted;
    if (waits) stream->wait();
    return waits ? context->error() : SUCCESS;
}

static Result set(uintptr_t target, uint32_t value, size_t value_bytes, size_t count, void* handle, bool waits) {
    const auto [context, result] = here();
    if (result != SUCCESS) return result;
    const auto stream = find_stream(*context, handle);
    if (!stream) return say(INVALID_HANDLE, "a memset names no stream of this context");
    if (count == 0) return SUCCESS;
    if (target % value_bytes != 0) return say(INVALID_VALUE, "a memset at an address that is no multiple of its values' size");
    if (const Result there = check_on_card(*context, target, value_bytes * count); there != SUCCESS) return there;
    if (waits) {
        if (const Result forbidden = forbidden_by_capture(); forbidden != SUCCESS) return forbidden;
    }
    const Result submitted = stream->submit(SetNode{target, value, value_bytes, count});
    if (submitted == SUCCESS && waits) stream->wait();
    return submitted;
}

static bool on_card(uintptr_t address, size_t bytes) { return Machine::the().owner(address, bytes) != nullptr; }

}  // namespace sim

using namespace sim;

EXPORTED int cuMemAlloc_v2(uintptr_t* address, size_t bytes) {
    const auto [context, result] = here();
    if (result != SUCCESS) return result;
    const Result forbidden = forbidden_by_capture();
    return forbidden != SUCCESS ? forbidden : allocate(*context, address, bytes);
}

EXPORTED int cuMemAllocAsync(uintptr_t* address, size_t bytes, void* handle) {
    const auto [context, result] = here();
    if (result != SUCCESS) return result;
    const auto stream = find_stream(*context, handle);
    if (!stream) return INVALID_HANDLE;
    if (stream->capture()) return say(NOT_SUPPORTED, "allocations in graphs are not imitated");
    return allocate(*context, address, bytes);
}

// As cards do, this waits for all that was asked for before.
EXPORTED int cuMemFree_v2(uintptr_t address) {
    const auto [context, result] = here();
    if (!context) return result;
    if (const Result forbidden = forbidden_by_capture(); forbidden != SUCCESS) return forbidden;
    if (address == 0) return result;
    const auto owner = Machine::the().owner(address, 1);
    if (owner) owner->wait();
    bool overrun;
    const std::string words = (owner ? owner : context)->memory.free(address, overrun);
    if (words.empty()) return context->error();
    return say(overrun ? ILLEGAL_ADDRESS : INVALID_VALUE, words);
}

EXPORTED int cuMemFreeAsync(uintptr_t address, void* handle) {
    const auto [context, result] = here();
    if (result != SUCCESS) return result;
    const auto stream = find_stream(*context, handle);
    if (!stream) return INVALID_HANDLE;
    if (stream->capture()) return say(NOT_SUPPORTED, "frees in graphs are not imitated");
    const std::string words = context->memory.check(address, 1);
    return words.empty() ? stream->submit(FreeNode{address}) : say(INVALID_VALUE, words);
}

EXPORTED int cuMemGetInfo_v2(size_t* free, size_t* all) {
    const auto [context, result] = here();
    if (!context) return result;
    *free = context->memory.bytes_free();
    *all = context->memory.bytes_all();
    return result;
}

EXPORTED int cuMemHostAlloc(void** address, size_t bytes, unsigned) {
    if (const Result result = here().result; result != SUCCESS) return result;
    *address = pinned().allocate(bytes);
    return *address == nullptr ? (bytes == 0 ? INVALID_VALUE : OUT_OF_MEMORY) : SUCCESS;
}
EXPORTED int cuMemAllocHost_v2(void** address, size_t bytes) { return cuMemHostAlloc(address, bytes, 0); }

EXPORTED int cuMemFreeHost(void* address) {
    const auto [context, result] = here();
    if (!context) return result;
    for (const auto& other : Machine::the().contexts()) other->wait();
    return pinned().free(address) ? SUCCESS : say(INVALID_VALUE, "memory of the host that was freed before, or never pinned");
}

EXPORTED int cuMemHostRegister_v2(void* address, size_t bytes, unsigned) {
    if (address == nullptr || bytes == 0) return INVALID_VALUE;
    return pinned().add(address, bytes) ? SUCCESS : HOST_MEMORY_ALREADY_REGISTERED;
}

EXPORTED int cuMemHostUnregister(void* address) { return pinned().remove(address) ? SUCCESS : HOST_MEMORY_NOT_REGISTERED; }

EXPORTED int cuMemHostGetDevicePointer_v2(uintptr_t* on_card, void* address, unsigned) {
    *on_card = reinterpret_cast<uintptr_t>(address);
    return pinned().holds(address, 1) ? SUCCESS : INVALID_VALUE;
}

EXPORTED int cuMemcpyHtoD_v2(uintptr_t target, const void* source, size_t bytes) {
    return copy({target, reinterpret_cast<uintptr_t>(source), bytes, true, false, nullptr, true});
}
EXPORTED int cuMemcpyDtoH_v2(void* target, uintptr_t source, size_t bytes) {
    return copy({reinterpret_cast<uintptr_t>(target), source, bytes, false, true, nullptr, true});
}
EXPORTED int cuMemcpyDtoD_v2(uintptr_t target, uintptr_t source, size_t bytes) { return copy({target, source, bytes, true, true, nullptr, true}); }
EXPORTED int cuMemcpyHtoDAsync_v2(uintptr_t target, const void* source, size_t bytes, void* stream) {
    return copy({target, reinterpret_cast<uintptr_t>(source), bytes, true, false, stream, false});
}
EXPORTED int cuMemcpyDtoHAsync_v2(void* target, uintptr_t source, size_t bytes, void* stream) {
    return copy({reinterpret_cast<uintptr_t>(target), source, bytes, false, true, stream, false});
}
EXPORTED int cuMemcpyDtoDAsync_v2(uintptr_t target, uintptr_t source, size_t bytes, void* stream) {
    return copy({target, source, bytes, true, true, stream, false});
}
EXPORTED int cuMemcpyAsync(uintptr_t target, uintptr_t source, size_t bytes, void* stream) {
    return copy({target, source, bytes, on_card(target, bytes), on_card(source, bytes), stream, false});
}
EXPORTED int cuMemcpy(uintptr_t target, uintptr_t source, size_t bytes) {
    return copy({target, source, bytes, on_card(target, bytes), on_card(source, bytes), nullptr, true});
}

// The bytes must lie on the cards that are named.
static Result copy_peer(uintptr_t target, void* target_context, uintptr_t source, void* source_context, size_t bytes, void* stream, bool waits) {
    const auto to = Machine::the().context(target_context), from = Machine::the().context(source_context);
    if (!to || !from) return INVALID_CONTEXT;
    std::string words = to->memory.check(target, bytes);
    if (words.empty()) words = from->memory.check(source, bytes);
    if (!words.empty()) return say(INVALID_VALUE, words);
    return copy({target, source, bytes, true, true, stream, waits});
}
EXPORTED int cuMemcpyPeerAsync(uintptr_t target, void* target_context, uintptr_t source, void* source_context, size_t bytes, void* stream) {
    return copy_peer(target, target_context, source, source_context, bytes, stream, false);
}
EXPORTED int cuMemcpyPeer(uintptr_t target, void* target_context, uintptr_t source, void* source_context, size_t bytes) {
    return copy_peer(target, target_context, source, source_context, bytes, nullptr, true);
}

EXPORTED int cuMemsetD8_v2(uintptr_t target, unsigned char value, size_t count) { return set(target, value, 1, count, nullptr, true); }
EXPORTED int cuMemsetD16_v2(uintptr_t target, unsigned short value, size_t count) { return set(target, value, 2, count, nullptr, true); }
EXPORTED int cuMemsetD32_v2(uintptr_t target, unsigned value, size_t count) { return set(target, value, 4, count, nullptr, true); }
EXPORTED int cuMemsetD8Async(uintptr_t target, unsigned char value, size_t count, void* stream) {
    return set(target, value, 1, count, stream, false);
}
EXPORTED int cuMemsetD16Async(uintptr_t target, unsigned short value, size_t count, void* stream) {
    return set(target, value, 2, count, stream, false);
}
EXPORTED int cuMemsetD32Async(uintptr_t target, unsigned value, size_t count, void* stream) {
    return set(target, value, 4, count, stream, false);
}
