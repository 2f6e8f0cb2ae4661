// What the checks share: the driver's interface as its users see it, and how a check fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

extern "C" {
int trueup_sim_configure(int cards, uint64_t memory_bytes, uint64_t seed);
int cuInit(unsigned flags);
int cuGetErrorString(int result, const char** sentence);
int cuGetErrorName(int result, const char** name);
int cuDeviceGetCount(int* count);
int cuDeviceGetAttribute(int* value, int attribute, int card);
int cuDevicePrimaryCtxRetain(void** context, int card);
int cuDevicePrimaryCtxReset_v2(int card);
int cuCtxSetCurrent(void* context);
int cuCtxSynchronize();
int cuCtxEnablePeerAccess(void* peer, unsigned flags);
int cuMemAlloc_v2(uintptr_t* address, size_t bytes);
int cuMemFree_v2(uintptr_t address);
int cuMemFreeAsync(uintptr_t address, void* stream);
int cuMemGetInfo_v2(size_t* free, size_t* all);
int cuMemHostAlloc(void** address, size_t bytes, unsigned flags);
int cuMemFreeHost(void* address);
int cuMemcpyHtoD_v2(uintptr_t target, const void* source, size_t bytes);
int cuMemcpyDtoH_v2(void* target, uintptr_t source, size_t bytes);
int cuMemcpyHtoDAsync_v2(uintptr_t target, const void* source, size_t bytes, void* stream);
int cuMemcpyDtoHAsync_v2(void* target, uintptr_t source, size_t bytes, void* stream);
int cuMemcpyDtoDAsync_v2(uintptr_t target, uintptr_t source, size_t bytes, void* stream);
int cuMemcpyPeerAsync(uintptr_t target, void* target_context, uintptr_t source, void* source_context, size_t bytes, void* stream);
int cuMemsetD8Async(uintptr_t target, unsigned char value, size_t count, void* stream);
int cuMemsetD32Async(uintptr_t target, unsigned value, size_t count, void* stream);
int cuModuleLoadData(void** module, const void* image);
int cuModuleLoadDataEx(void** module, const void* image, unsigned count, int* options, void** values);
int cuModuleGetFunction(void** function, void* module, const char* name);
int cuFuncSetAttribute(void* function, int attribute, int value);
int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                   unsigned shared_bytes, void* stream, void** arguments, void** extra);
int cuLaunchKernelEx(const void* config, void* function, void** arguments, void** extra);
int cuLaunchHostFunc(void* stream, void (*function)(void*), void* data);
int cuStreamCreate(void** stream, unsigned flags);
int cuStreamDestroy_v2(void* stream);
int cuStreamSynchronize(void* stream);
int cuStreamQuery(void* stream);
int cuStreamWaitEvent(void* stream, void* event, unsigned flags);
int cuStreamBeginCapture_v2(void* stream, int mode);
int cuStreamEndCapture(void* stream, void** graph);
int cuStreamIsCapturing(void* stream, int* status);
int cuEventCreate(void** event, unsigned flags);
int cuEventDestroy_v2(void* event);
int cuEventRecord(void* event, void* stream);
int cuEventQuery(void* event);
int cuEventSynchronize(void* event);
int cuEventElapsedTime_v2(float* milliseconds, void* first, void* second);
int cuGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long flags);
int cuGraphLaunch(void* exec, void* stream);
int cuGraphGetNodes(void* graph, void** nodes, size_t* count);
int cuGraphExecUpdate_v2(void* exec, void* graph, void* info);
int cuGraphExecKernelNodeSetParams_v2(void* exec, void* node, const void* wanted);
int cuGraphExecDestroy(void* exec);
int cuGraphDestroy(void* graph);
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* function, int threads, size_t shared_bytes);
}

constexpr int CARDS = 2;
constexpr size_t CARD_BYTES = 64 << 20;

// Tells that a check has failed; all go on.
void expect(bool holds, const std::string& what);
// A result that is not the expected one is told with its sentence.
void expect_result(int result, int expected, const std::string& what);
// What the driver says of a result.
std::string sentence_of(int result);

// A card's context, new and the calling thread's own; what was on the card is gone.
void* fresh_context(int card);
void* function_named(const char* name);

// Floats on the current context's card.
class Floats {
public:
    explicit Floats(size_t count);
    explicit Floats(const std::vector<float>& values);
    ~Floats();
    Floats(const Floats&) = delete;
    std::vector<float> read() const;
    uintptr_t address;
    const size_t count;
};

// kernel(x, y, n) of faults/*.cu.
int launch(const char* kernel, unsigned blocks, unsigned threads, unsigned shared_bytes, void* stream, uintptr_t x, uintptr_t y, int n);

// 1, 2, 3, ...
std::vector<float> counted(size_t count, float first = 1.0f);

void check_faults();
// Runs a kernel whose fault sanitizers tell, which end the process.
void check_sanitizer(const char* kernel);
void check_numbers();
void check_memory();
void check_streams();
void check_graphs();
void check_nccl();
void check_turns();
