#include "card.h"

#include <deque>

#include "block.h"
#include "fault.h"
#include "launch.h"
#include "stream.h"

namespace sim {

const char* kept(const std::string& words) {
    static std::mutex mutex;
    static auto& all = *new std::set<std::string>;
    const std::lock_guard lock(mutex);
    return all.insert(words).first->c_str();
}

Context::Context(int card, const Configuration& configuration) : card(card), memory(configuration.memory_bytes), seed(configuration.seed) {
    own = make_stream(true);
}

Context::~Context() {
    for (const auto& stream : streams) stream->end();
}

void Context::fail(Result result, const std::string& sentence) {
    const std::lock_guard lock(mutex);
    if (failed != SUCCESS) return;
    words = kept(sentence);
    failed = result;
}

std::shared_ptr<Stream> Context::make_stream(bool blocking) {
    const std::lock_guard lock(mutex);
    auto stream = std::make_shared<Stream>(*this, blocking, mixed(seed + (uint64_t)card * 1000 + streams_made++));
    streams.push_back(stream);
    return stream;
}

void Context::drop_stream(const std::shared_ptr<Stream>& stream) {
    {
        const std::lock_guard lock(mutex);
        std::erase(streams, stream);
    }
    stream->end();
}

std::vector<std::shared_ptr<Stream>> Context::all_streams() {
    const std::lock_guard lock(mutex);
    return streams;
}

Result Context::wait() {
    for (const auto& stream : all_streams()) stream->wait();
    return error();
}

Machine& Machine::the() {
    static Machine& machine = *new Machine;
    return machine;
}

Result Machine::configure(const Configuration& configuration) {
    const std::lock_guard lock(mutex);
    if (configuration.cards < 0 || configuration.cards > 64) return INVALID_VALUE;
    const bool same = wanted.cards == configuration.cards && wanted.memory_bytes == configuration.memory_bytes && wanted.seed == configuration.seed;
    if (is_started) return same ? SUCCESS : NOT_PERMITTED;
    wanted = configuration;
    return SUCCESS;
}

Result Machine::start() {
    const std::lock_guard lock(mutex);
    if (kernel_twice() != nullptr) return INVALID_IMAGE;
    if (is_started) return SUCCESS;
    catch_signals();
    uses.resize((size_t)wanted.cards);
    is_started = true;
    return wanted.cards == 0 ? NO_DEVICE : SUCCESS;
}

std::shared_ptr<Context> Machine::retain(int card) {
    const std::lock_guard lock(mutex);
    if (card < 0 || (size_t)card >= uses.size()) return nullptr;
    Use& use = uses[(size_t)card];
    if (use.users++ == 0) use.context = std::make_shared<Context>(card, wanted);
    return use.context;
}

Result Machine::release(int card, bool all) {
    // Its streams may ask for other contexts until they are done.
    if (const auto context = context_of_card(card)) context->wait();
    std::shared_ptr<Context> last;
    const std::lock_guard lock(mutex);
    if (card < 0 || (size_t)card >= uses.size()) return INVALID_DEVICE;
    Use& use = uses[(size_t)card];
    if (use.users == 0) return all ? SUCCESS : INVALID_CONTEXT;
    use.users = all ? 0 : use.users - 1;
    if (use.users == 0) last = std::move(use.context);
    return SUCCESS;
}

std::shared_ptr<Context> Machine::context(const void* handle) const {
    const std::lock_guard lock(mutex);
    for (const Use& use : uses) {
        if (use.users > 0 && use.context.get() == handle) return use.context;
    }
    return nullptr;
}

std::shared_ptr<Context> Machine::context_of_card(int card) const {
    const std::lock_guard lock(mutex);
    if (card < 0 || (size_t)card >= uses.size()) return nullptr;
    return uses[(size_t)card].context;
}

std::vector<std::shared_ptr<Context>> Machine::contexts() const {
    const std::lock_guard lock(mutex);
    std::vector<std::shared_ptr<Context>> all;
    for (const Use& use : uses) {
        if (use.users > 0) all.push_back(use.context);
    }
    return all;
}

std::shared_ptr<Context> Machine::owner(uintptr_t address, size_t bytes) const {
    for (auto& context : contexts()) {
        if (context->memory.check(address, bytes).empty()) return context;
    }
    return nullptr;
}

std::string address_words(uintptr_t address) {
    std::string words;
    for (const auto& context : Machine::the().contexts()) {
        if (context->memory.describe(address, words)) return words;
    }
    char hex[64];
    std::snprintf(hex, sizeof hex, "address 0x%llx, where no allocation is near", (unsigned long long)address);
    return hex;
}

}  // namespace sim
