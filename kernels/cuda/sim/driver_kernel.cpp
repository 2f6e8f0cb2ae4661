// The entry points of the driver library: modules, functions, launches. What a module's text says is not looked into: kernels are those of this
// library, by their names.

#include <algorithm>
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
    node = KernelNode{&kernel, grid, size, shared_bytes, std::vector<unsigned char>(kernel.arguments_bytes)};
    for (size_t i = 0; i < kernel.arguments; i++) {
        if (arguments[i] == nullptr) return say(INVALID_VALUE, name + ": argument " + std::to_string(i) + " is null");
        std::memcpy(node.arguments.data() + kernel.places[i], arguments[i], kernel.sizes[i]);
    }
    return SUCCESS;
}

static Result launch(void* function, dim3 grid, dim3 size, size_t shared_bytes, void* stream, void** arguments, void** extra) {
    const auto [context, result] = here();
    if (result != SUCCESS) return result;
    const auto target = find_stream(*context, stream);
    if (!target) return say(INVALID_HANDLE, "a launch names no stream of this context");
    KernelNode node;
    const Result made = make_kernel_node(function, grid, size, shared_bytes, arguments, extra, node);
    return made == SUCCESS ? target->submit(std::move(node)) : made;
}

}  // namespace sim

using namespace sim;

// A module's handle: nothing is known of it.
static char module_handle;

EXPORTED int cuModuleLoadData(void** module, const void* image) {
    const auto [context, result] = here();
    if (result != SUCCESS) return result;
    if (image == nullptr) return INVALID_VALUE;
    *module = &module_handle;
    return SUCCESS;
}

EXPORTED int cuModuleLoadDataEx(void** module, const void* image, unsigned, int*, void**) { return cuModuleLoadData(module, image); }

EXPORTED int cuModuleUnload(void* module) { return module == &module_handle ? here().result : INVALID_HANDLE; }

EXPORTED int cuModuleGetFunction(void** function, void* module, const char* name) {
    const auto [context, result] = here();
    if (result != SUCCESS) return result;
    if (module != &module_handle) return INVALID_HANDLE;
    const Kernel* const kernel = find_kernel(name);
    if (kernel == nullptr) return say(NOT_FOUND, std::string("the simulator's library has no kernel called ") + name + "; build it again");
    *function = functions().add(std::make_shared<Function>(kernel, BLOCK_SHARED_BYTES));
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
        case FUNCTION_BINARY_VERSION: *value = CAPABILITY_MAJOR * 10 + CAPABILITY_MINOR; return SUCCESS;
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

// Attributes that change nothing here: none, and those of order and priority that a later kernel may begin before.
EXPORTED int cuLaunchKernelEx(const LaunchConfig* config, void* function, void** arguments, void** extra) {
    constexpr size_t ATTRIBUTE_BYTES = 72;
    constexpr int NONE = 0, SERIALIZATION = 6, PRIORITY = 8;
    const auto* attributes = static_cast<const unsigned char*>(config->attributes);
    for (unsigned i = 0; i < config->attribute_count; i++) {
        int id;
        std::memcpy(&id, attributes + i * ATTRIBUTE_BYTES, sizeof id);
        if (id == NONE || id == SERIALIZATION || id == PRIORITY) continue;
        return say(NOT_SUPPORTED, "launch attribute " + std::to_string(id) + " is not imitated");
    }
    const dim3 grid{config->grid_x, config->grid_y, config->grid_z}, size{config->block_x, config->block_y, config->block_z};
    return launch(function, grid, size, config->shared_bytes, config->stream, arguments, extra);
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
