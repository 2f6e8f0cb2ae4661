#include "memory.h"

#include <sys/mman.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "lanes.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(address, bytes) __asan_poison_memory_region(address, bytes)
#define UNPOISON(address, bytes) __asan_unpoison_memory_region(address, bytes)
#else
#define POISON(address, bytes)
#define UNPOISON(address, bytes)
#endif

namespace sim {

constexpr unsigned char UNWRITTEN = 0xff;
constexpr unsigned char GUARD = 0xa5;
constexpr size_t GUARD_BYTES = 256;
// Addresses without access on either side: what is wrong by a row or two is found too.
constexpr size_t CLOSED_BYTES = 1 << 20;
// How many freed allocations are kept out of use.
constexpr size_t FREED_MAX = 512;

static size_t rounded(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Bytes of the card that an allocation takes: from a MiB on it has pages of 2 MiB of its own, as is seen on cards.
static size_t taken(size_t bytes) {
    constexpr size_t OWN_PAGES_FROM = 1 << 20, CARD_PAGE_BYTES = 2 << 20;
    return rounded(bytes, bytes < OWN_PAGES_FROM ? MEMORY_ALIGN : CARD_PAGE_BYTES);
}

// Bytes of the guard zone behind an allocation.
static size_t behind(size_t bytes) { return rounded(bytes, MEMORY_ALIGN) - bytes; }

Memory::~Memory() {
    for (auto* list : {&places, &freed}) {
        for (const auto& [address, place] : *list) {
            UNPOISON(place.map, place.map_bytes);
            munmap(place.map, place.map_bytes);
        }
    }
}

uintptr_t Memory::allocate(size_t bytes) {
    const std::lock_guard lock(mutex);
    if (bytes == 0 || bytes > limit || taken(bytes) > limit - used) return 0;
    const size_t room = rounded(rounded(bytes, MEMORY_ALIGN) + GUARD_BYTES, PAGE_BYTES), map_bytes = room + 2 * CLOSED_BYTES;
    void* const map = mmap(nullptr, map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return 0;
    Place place{bytes, static_cast<unsigned char*>(map), map_bytes};
    unsigned char* const first = place.map + CLOSED_BYTES;
    if (mprotect(first, room, PROT_READ | PROT_WRITE) != 0) {
        munmap(map, map_bytes);
        return 0;
    }
    const uintptr_t address = reinterpret_cast<uintptr_t>(first) + room - rounded(bytes, MEMORY_ALIGN);
    std::memset(reinterpret_cast<void*>(address), UNWRITTEN, bytes);
    fill_guards(address, place);
    used += taken(bytes);
    places.emplace(address, place);
    return address;
}

void Memory::fill_guards(uintptr_t address, const Place& place) const {
    auto* const bytes = reinterpret_cast<unsigned char*>(address);
    UNPOISON(bytes - GUARD_BYTES, GUARD_BYTES);
    UNPOISON(bytes, rounded(place.bytes, MEMORY_ALIGN));
    std::memset(bytes - GUARD_BYTES, GUARD, GUARD_BYTES);
    std::memset(bytes + place.bytes, GUARD, behind(place.bytes));
    POISON(bytes - GUARD_BYTES, GUARD_BYTES);
    POISON(bytes + place.bytes, behind(place.bytes));
}

// The sanitizer may not look at it: no access to its zones goes by unseen.
bool Memory::guards_are_whole([[maybe_unused]] uintptr_t address, [[maybe_unused]] const Place& place) const {
#if defined(__SANITIZE_ADDRESS__)
    return true;
#else
    static const auto zone = [] {
        std::array<unsigned char, GUARD_BYTES> zone;
        zone.fill(GUARD);
        return zone;
    }();
    const auto* const bytes = reinterpret_cast<const unsigned char*>(address);
    return std::memcmp(bytes - GUARD_BYTES, zone.data(), GUARD_BYTES) == 0 && std::memcmp(bytes + place.bytes, zone.data(), behind(place.bytes)) == 0;
#endif
}

static std::string hex(uintptr_t address) {
    char words[24];
    std::snprintf(words, sizeof words, "0x%llx", (unsigned long long)address);
    return words;
}

std::string Memory::free(uintptr_t address, bool& overrun) {
    const std::lock_guard lock(mutex);
    const auto found = places.find(address);
    overrun = false;
    if (found == places.end()) {
        if (freed.contains(address)) return "the memory at " + hex(address) + " was freed before";
        return "no memory of this card begins at " + hex(address);
    }
    Place place = found->second;
    overrun = !guards_are_whole(address, place);
    places.erase(found);
    used -= taken(place.bytes);
    UNPOISON(place.map, place.map_bytes);
    // Its pages go back, its addresses do not.
    void* const again = mmap(place.map, place.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (again != MAP_FAILED) {
        freed.insert_or_assign(address, place);
        freed_order.push_back(address);
    }
    while (freed_order.size() > FREED_MAX) {
        const auto oldest = freed.find(freed_order.front());
        freed_order.pop_front();
        munmap(oldest->second.map, oldest->second.map_bytes);
        freed.erase(oldest);
    }
    return !overrun ? "" : "bytes around the " + std::to_string(place.bytes) + " bytes at " + hex(address) + " were written";
}

std::string Memory::check(uintptr_t address, size_t bytes) const {
    const std::lock_guard lock(mutex);
    auto next = places.upper_bound(address);
    if (next != places.begin()) {
        const auto& [first, place] = *--next;
        const size_t inside = address - first;
        if (inside <= place.bytes && bytes <= place.bytes - inside) return "";
        if (inside < rounded(place.bytes, MEMORY_ALIGN)) {
            return std::to_string(bytes) + " bytes from byte " + std::to_string(inside) + " on do not lie within an allocation of " +
                   std::to_string(place.bytes) + " bytes";
        }
    }
    for (const auto& [first, place] : freed) {
        if (address - first < place.bytes) return "the memory at " + hex(address) + " was freed";
    }
    return hex(address) + " is no memory of this card";
}

const unsigned char* Memory::check_guards(std::string& words) {
    const std::lock_guard lock(mutex);
    for (const auto& [address, place] : places) {
        if (guards_are_whole(address, place)) continue;
        const auto* const bytes = reinterpret_cast<const unsigned char*>(address);
        const unsigned char *found = bytes - 1, *const end = bytes + rounded(place.bytes, MEMORY_ALIGN);
        while (found >= bytes - GUARD_BYTES && *found == GUARD) found--;
        if (found < bytes - GUARD_BYTES) {
            found = bytes + place.bytes;
            while (found < end && *found == GUARD) found++;
        } else {
            while (found > bytes - GUARD_BYTES && found[-1] != GUARD) found--;
        }
        words = found < bytes ? std::to_string(bytes - found) + " bytes before" : "byte " + std::to_string(found - bytes) + " of";
        words += " an allocation of " + std::to_string(place.bytes) + " bytes";
        fill_guards(address, place);
        return found;
    }
    return nullptr;
}

bool Memory::describe(uintptr_t address, std::string& words) const {
    const std::lock_guard lock(mutex);
    for (const auto* list : {&places, &freed}) {
        for (const auto& [first, place] : *list) {
            if (address - reinterpret_cast<uintptr_t>(place.map) >= place.map_bytes) continue;
            const std::string of = std::to_string(place.bytes) + " bytes";
            if (list == &freed) {
                words = of + " that were freed";
            } else if (address < first) {
                words = std::to_string(first - address) + " bytes before an allocation of " + of;
            } else {
                words = "byte " + std::to_string(address - first) + " of an allocation of " + of;
            }
            return true;
        }
    }
    return false;
}

size_t Memory::bytes_free() const {
    const std::lock_guard lock(mutex);
    return limit - used;
}

void* Pinned::allocate(size_t bytes) {
    if (bytes == 0 || bytes > SIZE_MAX - PAGE_BYTES) return nullptr;
    void* const address = std::aligned_alloc(PAGE_BYTES, rounded(bytes, PAGE_BYTES));
    if (address == nullptr) return nullptr;
    std::memset(address, UNWRITTEN, bytes);
    const std::lock_guard lock(mutex);
    places.insert_or_assign(reinterpret_cast<uintptr_t>(address), Place{bytes, true});
    return address;
}

bool Pinned::free(void* address) {
    const std::lock_guard lock(mutex);
    const auto found = places.find(reinterpret_cast<uintptr_t>(address));
    if (found == places.end() || !found->second.own) return false;
    places.erase(found);
    std::free(address);
    return true;
}

bool Pinned::holds(const void* address, size_t bytes) const {
    const std::lock_guard lock(mutex);
    const auto at = reinterpret_cast<uintptr_t>(address);
    auto next = places.upper_bound(at);
    if (next == places.begin()) return false;
    const auto& [first, place] = *--next;
    return at - first <= place.bytes && bytes <= place.bytes - (at - first);
}

bool Pinned::add(void* address, size_t bytes) {
    const std::lock_guard lock(mutex);
    return places.emplace(reinterpret_cast<uintptr_t>(address), Place{bytes, false}).second;
}

bool Pinned::remove(void* address) {
    const std::lock_guard lock(mutex);
    const auto found = places.find(reinterpret_cast<uintptr_t>(address));
    if (found == places.end() || found->second.own) return false;
    places.erase(found);
    return true;
}

Pinned& pinned() {
    static Pinned pinned;
    return pinned;
}

}  // namespace sim
