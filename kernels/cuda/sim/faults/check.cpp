// Checks of the simulator, by the driver's interface: every planted fault is found with its sentence, every right twin
// passes, and streams, events, graphs, memory, numbers and all-gathers are as on a card.
//
//   check SEED              all
//   check SEED KERNEL       one kernel whose fault sanitizers tell

#include "check.h"

#include <cstdio>
#include <cstdlib>

static int failures = 0;

void expect(bool holds, const std::string& what) {
    if (holds) return;
    failures++;
    std::printf("FAILED: %s\n", what.c_str());
}

std::string sentence_of(int result) {
    const char *name = nullptr, *sentence = nullptr;
    cuGetErrorName(result, &name);
    cuGetErrorString(result, &sentence);
    return std::string(name == nullptr ? "?" : name) + ": " + (sentence == nullptr ? "?" : sentence);
}

void expect_result(int result, int expected, const std::string& what) {
    expect(result == expected, what + " gives " + sentence_of(result) + ", expected " + std::to_string(expected));
}

void* fresh_context(int card) {
    void* context = nullptr;
    expect_result(cuDevicePrimaryCtxReset_v2(card), 0, "reset of a card");
    expect_result(cuDevicePrimaryCtxRetain(&context, card), 0, "a card's context");
    expect_result(cuCtxSetCurrent(context), 0, "making a context the thread's own");
    return context;
}

void* function_named(const char* name) {
    void *module = nullptr, *function = nullptr;
    expect_result(cuModuleLoadData(&module, ""), 0, "loading a module");
    expect_result(cuModuleGetFunction(&function, module, name), 0, std::string("finding kernel ") + name);
    return function;
}

Floats::Floats(size_t count) : count(count) { expect_result(cuMemAlloc_v2(&address, count * sizeof(float)), 0, "an allocation"); }

Floats::Floats(const std::vector<float>& values) : Floats(values.size()) {
    expect_result(cuMemcpyHtoD_v2(address, values.data(), values.size() * sizeof(float)), 0, "a copy to the card");
}

// Freed memory of a context that has failed, or is gone, is no fault.
Floats::~Floats() { cuMemFree_v2(address); }

std::vector<float> Floats::read() const {
    std::vector<float> values(count);
    expect_result(cuMemcpyDtoH_v2(values.data(), address, count * sizeof(float)), 0, "a copy from the card");
    return values;
}

int launch(const char* kernel, unsigned blocks, unsigned threads, unsigned shared_bytes, void* stream, uintptr_t x, uintptr_t y, int n) {
    void* arguments[] = {&x, &y, &n};
    return cuLaunchKernel(function_named(kernel), blocks, 1, 1, threads, 1, 1, shared_bytes, stream, arguments, nullptr);
}

std::vector<float> counted(size_t count, float first) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; i++) values[i] = first + (float)i;
    return values;
}

int main(int argc, char** argv) {
    const int seed = argc == 2 || argc == 3 ? std::atoi(argv[1]) : 0;
    if (seed < 1) {
        std::fprintf(stderr, "usage: check SEED [KERNEL]\n");
        return 2;
    }
    int count = 0;
    expect_result(cuDeviceGetCount(&count), 3, "asking for cards before the start");
    expect_result(trueup_sim_configure(CARDS, CARD_BYTES, (uint64_t)seed), 0, "the configuration");
    expect_result(cuInit(0), 0, "the start");
    expect_result(trueup_sim_configure(CARDS + 1, CARD_BYTES, (uint64_t)seed), 800, "another configuration after the start");
    if (argc == 3) {
        check_sanitizer(argv[2]);
        return 0;
    }
    check_numbers();
    check_memory();
    check_streams();
    check_graphs();
    check_nccl();
    check_turns();
    check_faults();
    std::printf("seed %d: %s\n", seed, failures == 0 ? "all as expected" : "FAILED");
    return failures == 0 ? 0 : 1;
}
