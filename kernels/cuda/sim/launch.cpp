#include "launch.h"

#include <condition_variable>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

namespace sim {

// Grids of fewer threads are not worth waking anybody.
constexpr uint64_t ALONE_THREADS = 2048;

static Kernel* kernels = nullptr;
static const char* twice = nullptr;

void add_kernel(Kernel& kernel) {
    if (find_kernel(kernel.name) != nullptr) twice = kernel.name;
    kernel.next = kernels;
    kernels = &kernel;
}

const Kernel* find_kernel(const char* name) {
    for (const Kernel* kernel = kernels; kernel != nullptr; kernel = kernel->next) {
        if (std::strcmp(kernel->name, name) == 0) return kernel;
    }
    return nullptr;
}

const char* kernel_twice() { return twice; }

// Blocks of one grid, dealt out one by one: forward, backward or far apart.
struct Deal {
    Launch& launch;
    uint64_t blocks, step;
    std::atomic<uint64_t> next = 0;

    explicit Deal(Launch& launch) : launch(launch), blocks(launch.blocks()), step(1) {
        constexpr uint64_t FAR = 104729;
        const uint64_t order = launch.seed % 3;
        if (order == 1) step = blocks - 1;
        if (order == 2 && std::gcd(FAR, blocks) == 1) step = FAR % blocks;
    }

    void run(Worker& worker) {
        if (next.load() >= blocks) return;
        worker.begin(launch);
        for (uint64_t i; !launch.failed && (i = next++) < blocks;) {
            const auto block = (uint64_t)((unsigned __int128)(i + launch.seed % blocks) * step % blocks);
            if (block != launch.begun) worker.run(launch, block);
        }
    }
};

// OS threads that help with one grid at a time. They end with the process.
class Pool {
public:
    Pool() {
        for (unsigned i = 1; i < std::thread::hardware_concurrency(); i++) std::thread([this] { help(); }).detach();
    }

    void run(Worker& own, Deal& deal) {
        std::unique_lock busy(one_grid, std::try_to_lock);
        if (!busy || deal.blocks < 2 || deal.blocks * deal.launch.threads() < ALONE_THREADS) {
            deal.run(own);
            return;
        }
        {
            const std::lock_guard lock(mutex);
            current = &deal;
            number++;
        }
        begun.notify_all();
        deal.run(own);
        std::unique_lock lock(mutex);
        current = nullptr;
        ended.wait(lock, [this] { return helping == 0; });
    }

private:
    [[noreturn]] void help() {
        Worker worker;
        std::unique_lock lock(mutex);
        for (uint64_t last = 0;;) {
            begun.wait(lock, [&] { return current != nullptr && number != last; });
            last = number;
            Deal& deal = *current;
            helping++;
            lock.unlock();
            deal.run(worker);
            lock.lock();
            if (--helping == 0) ended.notify_all();
        }
    }

    std::mutex one_grid;
    std::mutex mutex;
    std::condition_variable begun, ended;
    Deal* current = nullptr;
    // Of the current grid: another may lie at the same address.
    uint64_t number = 0;
    unsigned helping = 0;
};

void run_grid(Worker& own, Launch& launch) {
    static Pool& pool = *new Pool;
    Deal deal(launch);
    pool.run(own, deal);
}

Forerunner::Forerunner() : thread([this] { run(); }) {}

Forerunner::~Forerunner() {
    {
        const std::lock_guard lock(mutex);
        ended = true;
    }
    changed.notify_all();
    thread.join();
}

void Forerunner::begin(Launch& launch) {
    {
        const std::lock_guard lock(mutex);
        current = &launch;
    }
    changed.notify_all();
    launch.turn.wait_until_reached();
}

void Forerunner::finish() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return current == nullptr; });
}

void Forerunner::run() {
    Worker worker;
    std::unique_lock lock(mutex);
    for (;;) {
        changed.wait(lock, [this] { return ended || current != nullptr; });
        if (current == nullptr) return;
        Launch& launch = *current;
        lock.unlock();
        worker.begin(launch);
        worker.run(launch, launch.begun);
        launch.turn.reach();
        lock.lock();
        current = nullptr;
        changed.notify_all();
    }
}

}  // namespace sim
