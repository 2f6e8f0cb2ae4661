// Memory of the simulated cards, and pinned memory of the host.
//
//   | 1 MiB without access | ... guard zone | bytes | 0 to 255 of guard zone | 1 MiB without access |
//
// Fresh bytes are 0xff. Bytes begin at a multiple of 256, and what lies behind the next one cannot be touched at all:
// who reads or writes there is found at once, who writes less far when the kernel is done. Freed memory cannot be
// touched either, and its addresses are used again late.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <deque>
#include <string>

namespace sim {

constexpr size_t MEMORY_ALIGN = 256;

// Memory of one card.
class Memory {
public:
    explicit Memory(size_t limit) : limit(limit) {}
    ~Memory();
    Memory(const Memory&) = delete;

    // The address of so many bytes; 0 where there are not as many.
    uintptr_t allocate(size_t bytes);
    // An empty sentence, or why this cannot be freed, or that its guard zone was written (`overrun`).
    std::string free(uintptr_t address, bool& overrun);
    // An empty sentence, or why these bytes are not ones of this card.
    std::string check(uintptr_t address, size_t bytes) const;
    // A byte of a guard zone that was written and what it is, or null; the zone is made whole again.
    const unsigned char* check_guards(std::string& words);
    // Whether the address is of this card; what is there, then.
    bool describe(uintptr_t address, std::string& words) const;

    size_t bytes_free() const;
    size_t bytes_all() const { return limit; }

private:
    struct Place {
        size_t bytes;
        unsigned char* map;
        size_t map_bytes;
    };
    bool guards_are_whole(uintptr_t address, const Place& place) const;
    void fill_guards(uintptr_t address, const Place& place) const;

    const size_t limit;
    mutable std::mutex mutex;
    std::map<uintptr_t, Place> places;
    // Freed and not yet given back to the system.
    std::map<uintptr_t, Place> freed;
    std::deque<uintptr_t> freed_order;
    size_t used = 0;
};

// Memory of the host that cards reach by themselves.
class Pinned {
public:
    void* allocate(size_t bytes);
    bool free(void* address);
    // Whether it lies in pinned memory, so that copies need not be done when the call returns.
    bool holds(const void* address, size_t bytes) const;
    // Memory that somebody else allocated.
    bool add(void* address, size_t bytes);
    bool remove(void* address);

private:
    struct Place {
        size_t bytes;
        bool own;
    };
    mutable std::mutex mutex;
    std::map<uintptr_t, Place> places;
};

Pinned& pinned();

// What lies at an address, over all cards: "4 bytes behind an allocation of 100 bytes".
std::string address_words(uintptr_t address);

}  // namespace sim
