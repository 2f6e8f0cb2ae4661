// The entry points of the driver library: modules, functions, launches. Of a module only the generation is looked at
// that it is for: kernels are those of this library, by their names.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "driver.h"
#include "launch.h"

namespace sim {

constexpr unsigned GRID_X_MAX = 2147483647, GRID_YZ_MAX = 65535, BLOCK_XY_MAX = 1024, BLOCK_Z_MAX = 64;

static std::string three(dim3 numbers) { return std::to_string(numbers.x) + " x " + std::to_string(numbers.y) + " x " + std::to_string(numbers.z); }

static bool grid_fits(dim3 grid) {
    return grid.x >= 1 && grid.y >= 1 && grid.z >= 1 && grid.x <= GRID_X_MAX && grid.y <= GRID_YZ_MAX && grid.z <= GRID_YZ_MAX;
}

static bool block_fits(dim3 size) {
    if (size.x < 1 || size.y < 1 || size.z < 1 || size.x > BLOCK_XY_MAX || size.y > BLOCK_XY_MAX || size.z > BLOCK_Z_MAX) return false;
    return size.x * size.y * size.z <= BLOCK_THREADS_MAX;
}

// A launch that begins early waits by an instruction that its module must have been compiled with.
static Result check_early(const Function& function) {
    const std::string name = std::string("kernel ") + function.kernel->name;
    if (capability() < CAPABILITY_EARLY) return say(NOT_SUPPORTED, name + ": a card of this generation begins no launch before the last has ended");
    if (function.target == 0 || function.target >= CAPABILITY_EARLY) return SUCCESS;
    return say(INVALID_VALUE, name + ": begins before the last launch has ended, and is of a module for sm_" + std::to_string(function.target) +
                                  ", which cannot wait for it");
}

// The generation that a module is for: PTX names it, machine code has it in its flags; 0 where there is none.
static int target_of(const char* image) {
    constexpr size_t FLAGS_PLACE = 48;
    if (std::strncmp(image, "\x7f" "ELF", 4) == 0) return (unsigned char)image[FLAGS_PLACE];
    const char* const said = std::strstr(image, "\n.target sm_");
    return said == nullptr ? 0 : std::atoi(said + std::strlen("\n.target sm_"));
}

// ".entry NAME" where a module has the kernel of which TRUEUP_CUDA_SIM_REFUSES says that its module is refused; else
// nothing.
static std::string refused_entry(const char* image) {
    const char* const name = std::getenv("TRUEUP_CUDA_SIM_REFUSES");
    if (name == nullptr) return "";
    const std::string entry = std::string(".entry ") + name;
    return std::strstr(image, (entry + "(").c_str()) == nullptr ? "" : entry;
}

// Tells in the caller's buffer, if there is one, what is wrong with a module.
static void log_for(unsigned count, const int* options, void** values, const std::string& words) {
    char* buffer = nullptr;
    size_t bytes = 0;
    for (unsigned i = 0; i < count; i++) {
        if (options[i] == JIT_ERROR_LOG) buffer = static_cast<char*>(values[i]);
        if (options[i] == JIT_ERROR_LOG_BYTES) bytes = reinterpret_cast<uintptr_t>(values[i]);
    }
    if (buffer != nullptr && bytes > 0) std::snprintf(buffer, bytes, "%s\n", words.c_str());
}

Result make_kernel_node(void* handle, dim3 grid, dim3 size, size_t shared_bytes, void** arguments, void** extra, KernelNode& node) {
    const auto function = functions().find(handle);
    if (!function) return say(INVALID_HANDLE, "a launch names no function of a module");
    const Kernel& kernel = *function->kernel;
    const std::string name = std::string("kernel ") + kernel.name;
    if (!grid_fits(grid)) {
        return say(INVALID_VALUE, name + ": a grid of " + three(grid) + " blocks; at most 2147483647 x 65535 x 65535, at least one");
    }
    if (!block_fits(size)) {
        return say(INVALID_VALUE, name + ": a block of " + three(size) + " threads; at most 1024 x 1024 x 64 and 1024 in all, at least one");
    }
    const size_t shared_max = (size_t)function->dynamic_shared_bytes_max.load();
    if (shared_bytes > shared_max) {
        return say(INVALID_VALUE, name + ": " + std::to_string(shared_bytes) + " bytes of dynamic shared memory; at most " +
                                      std::to_string(shared_max) + " without raising the function's attribute");
    }
    if (extra != nullptr) return say(NOT_SUPPORTED, name + ": arguments in a buffer are not imitated");
    if (arguments == nullptr && kernel.arguments > 0) return say(INVALID_VALUE, name + ": no arguments");
    node = KernelNode{&kernel, grid, size, shared_bytes, std::vector<unsigned char>(kernel.arguments_bytes), false};
    for (size_t i = 0; i < kernel.arguments; i++) {
        if (arguments[i] == nullptr) return say(INVALID_VALUE, name + ": argument " + std::to_string(i) + " is null");
        std::memcpy(node.arguments.data() + kernel.places[i], arguments[i], kernel.sizes[i]);
    }
    return SUCCESS;
}

static Result launch(void* function, dim3 grid, dim3 size, size_t shared_bytes, void* stream, void** arguments, void** extra, bool early = false) {
    const auto [context, result] = here();
    if (result != SUCCESS) return result;
    const auto target = find_stream(*context, stream);
    if (!target) return say(INVALID_HANDLE, "a launch names no stream of this context");
    KernelNode node;
    const Result made = make_kernel_node(function, grid, size, shared_bytes, arguments, extra, node);
    if (made != SUCCESS) return made;
    node.early = early;
    const Result possible = early ? check_early(*functions().find(function)) : SUCCESS;
    return possible == SUCCESS ? target->submit(std::move(node)) : possible;
}

}  // namespace sim

using namespace sim;

EXPORTED int cuModuleLoadDataEx(void** module, const void* image, unsigned count, int* options, void** values) {
    const auto [context, result] = here();
    if (result != SUCCESS) return result;
    if (image == nullptr) return INVALID_VALUE;
    const int target = target_of(static_cast<const char*>(image));
    if (const std::string refused = refused_entry(static_cast<const char*>(image)); !refused.empty()) {
        log_for(count, options, values, refused + ": refused, as TRUEUP_CUDA_SIM_REFUSES says");
        return INVALID_PTX;
    }
    if (target > capability()) {
        log_for(count, options, values, ".target sm_" + std::to_string(target) + ": the simulated card is sm_" + std::to_string(capability()));
        return INVALID_PTX;
    }
    *module = modules().add(std::make_shared<Module>(target));
    return SUCCESS;
}

EXPORTED int cuModuleLoadData(void** module, const void* image) { return cuModuleLoadDataEx(module, image, 0, nullptr, nullptr); }

EXPORTED int cuModuleUnload(void* module) { return modules().remove(module) ? here().result : INVALID_HANDLE; }

EXPORTED int cuModuleGetFunction(void** function, void* handle, const char* name) {
    const auto [context, result] = here();
    if (result != SUCCESS) return result;
    const auto module = modules().find(handle);
    if (!module) return INVALID_HANDLE;
    const Kernel* const kernel = find_kernel(name);
    if (kernel == nullptr) return say(NOT_FOUND, std::string("the simulator's library has no kernel called ") + name + "; build it again");
    *function = functions().add(std::make_shared<Function>(kernel, module->target, BLOCK_SHARED_BYTES));
    return SUCCESS;
}

EXPORTED int cuModuleGetGlobal_v2(uintptr_t*, size_t*, void*, const char*) { return NOT_FOUND; }

EXPORTED int cuFuncGetAttribute(int* value, int attribute, void* handle) {
    const auto function = functions().find(handle);
    if (!function) return INVALID_HANDLE;
    switch (attribute) {
        case FUNCTION_MAX_THREADS: *value = BLOCK_THREADS_MAX; return SUCCESS;
        case FUNCTION_REGISTERS: *value = 32; return SUCCESS;
        case FUNCTION_PTX_VERSION:
        case FUNCTION_BINARY_VERSION: *value = capability(); return SUCCESS;
        case FUNCTION_MAX_DYNAMIC_SHARED_BYTES: *value = function->dynamic_shared_bytes_max; return SUCCESS;
        case FUNCTION_SHARED_CARVEOUT: *value = -1; return SUCCESS;
        case FUNCTION_STATIC_SHARED_BYTES:
        case FUNCTION_CONST_BYTES:
        case FUNCTION_LOCAL_BYTES:
        case FUNCTION_CACHE_MODE_CA: *value = 0; return SUCCESS;
        default: return INVALID_VALUE;
    }
}

EXPORTED int cuFuncSetAttribute(void* handle, int attribute, int value) {
    const auto function = functions().find(handle);
    if (!function) return INVALID_HANDLE;
    if (attribute == FUNCTION_SHARED_CARVEOUT) return value >= -1 && value <= 100 ? SUCCESS : INVALID_VALUE;
    if (attribute != FUNCTION_MAX_DYNAMIC_SHARED_BYTES) return INVALID_VALUE;
    if (value < 0 || value > BLOCK_SHARED_BYTES_MAX) {
        return say(INVALID_VALUE, "a block has at most " + std::to_string(BLOCK_SHARED_BYTES_MAX) + " bytes of shared memory");
    }
    function->dynamic_shared_bytes_max = value;
    return SUCCESS;
}

EXPORTED int cuFuncSetCacheConfig(void* handle, int) { return functions().find(handle) ? SUCCESS : INVALID_HANDLE; }

EXPORTED int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                            unsigned shared_bytes, void* stream, void** arguments, void** extra) {
    return launch(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, stream, arguments, extra);
}

// Of the attributes, that which lets a launch begin before the last has ended is imitated; none and priority change
// nothing.
EXPORTED int cuLaunchKernelEx(const LaunchConfig* config, void* function, void** arguments, void** extra) {
    const auto* attributes = static_cast<const LaunchAttribute*>(config->attributes);
    bool early = false;
    for (unsigned i = 0; i < config->attribute_count; i++) {
        const int id = attributes[i].id;
        if (id == ATTRIBUTE_SERIALIZATION) early = attributes[i].value != 0;
        if (id == ATTRIBUTE_NONE || id == ATTRIBUTE_SERIALIZATION || id == ATTRIBUTE_PRIORITY) continue;
        return say(NOT_SUPPORTED, "launch attribute " + std::to_string(id) + " is not imitated");
    }
    const dim3 grid{config->grid_x, config->grid_y, config->grid_z}, size{config->block_x, config->block_y, config->block_z};
    return launch(function, grid, size, config->shared_bytes, config->stream, arguments, extra, early);
}

EXPORTED int cuLaunchCooperativeKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**) {
    return say(NOT_SUPPORTED, "cooperative launches are not imitated");
}

EXPORTED int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* handle, int threads, size_t shared_bytes) {
    const auto function = functions().find(handle);
    if (!function) return INVALID_HANDLE;
    if (threads < 1) return INVALID_VALUE;
    const int by_threads = threads > (int)BLOCK_THREADS_MAX ? 0 : MULTIPROCESSOR_THREADS / ((threads + (int)LANES - 1) / (int)LANES * (int)LANES);
    const bool fits = shared_bytes <= (size_t)function->dynamic_shared_bytes_max.load();
    const int by_shared = fits ? (int)(MULTIPROCESSOR_SHARED_BYTES / (shared_bytes + BLOCK_SHARED_BYTES_TAKEN)) : 0;
    *blocks = std::min({by_threads, by_shared, MULTIPROCESSOR_BLOCKS});
    return SUCCESS;
}

EXPORTED int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, void* handle, int threads, size_t shared_bytes, unsigned) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, handle, threads, shared_bytes);
}
