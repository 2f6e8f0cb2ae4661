// The part of the driver's interface that is imitated: its numbers and structures, as its documentation gives them.
#pragma once

#include <cstddef>
#include <cstdint>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace sim {

enum Result : int {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    PEER_ACCESS_UNSUPPORTED = 217,
    INVALID_PTX = 218,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    PEER_ACCESS_ALREADY_ENABLED = 704,
    PEER_ACCESS_NOT_ENABLED = 705,
    CONTEXT_IS_DESTROYED = 709,
    HOST_MEMORY_ALREADY_REGISTERED = 712,
    HOST_MEMORY_NOT_REGISTERED = 713,
    LAUNCH_FAILED = 719,
    NOT_PERMITTED = 800,
    NOT_SUPPORTED = 801,
    STREAM_CAPTURE_UNSUPPORTED = 900,
    STREAM_CAPTURE_INVALIDATED = 901,
    STREAM_CAPTURE_UNMATCHED = 903,
    STREAM_CAPTURE_UNJOINED = 904,
    STREAM_CAPTURE_ISOLATION = 905,
    CAPTURED_EVENT = 907,
    STREAM_CAPTURE_WRONG_THREAD = 908,
    GRAPH_EXEC_UPDATE_FAILURE = 910,
};

// CUstream_flags, and streams that are no objects.
constexpr unsigned STREAM_NON_BLOCKING = 1;
constexpr uintptr_t STREAM_LEGACY = 1;
constexpr uintptr_t STREAM_PER_THREAD = 2;

// CUstreamCaptureMode and CUstreamCaptureStatus.
enum CaptureMode : int { CAPTURE_GLOBAL = 0, CAPTURE_THREAD_LOCAL = 1, CAPTURE_RELAXED = 2 };
enum CaptureStatus : int { CAPTURE_NONE = 0, CAPTURE_ACTIVE = 1, CAPTURE_INVALIDATED = 2 };

// CUfunction_attribute.
enum FunctionAttribute : int {
    FUNCTION_MAX_THREADS = 0,
    FUNCTION_STATIC_SHARED_BYTES = 1,
    FUNCTION_CONST_BYTES = 2,
    FUNCTION_LOCAL_BYTES = 3,
    FUNCTION_REGISTERS = 4,
    FUNCTION_PTX_VERSION = 5,
    FUNCTION_BINARY_VERSION = 6,
    FUNCTION_CACHE_MODE_CA = 7,
    FUNCTION_MAX_DYNAMIC_SHARED_BYTES = 8,
    FUNCTION_SHARED_CARVEOUT = 9,
};

// CUDA_KERNEL_NODE_PARAMS_v2.
struct KernelNodeParams {
    void* function;
    unsigned grid_x, grid_y, grid_z;
    unsigned block_x, block_y, block_z;
    unsigned shared_bytes;
    void** arguments;
    void** extra;
    void* kernel;
    void* context;
};
static_assert(sizeof(KernelNodeParams) == 72);

// CUlaunchConfig.
struct LaunchConfig {
    unsigned grid_x, grid_y, grid_z;
    unsigned block_x, block_y, block_z;
    unsigned shared_bytes;
    void* stream;
    void* attributes;
    unsigned attribute_count;
};
static_assert(sizeof(LaunchConfig) == 56);

// CUlaunchAttribute, of which one number is looked at.
struct LaunchAttribute {
    int id, unused;
    int value;
    unsigned char rest[60];
};
static_assert(sizeof(LaunchAttribute) == 72);

// CUlaunchAttributeID.
enum LaunchAttributeId : int { ATTRIBUTE_NONE = 0, ATTRIBUTE_SERIALIZATION = 6, ATTRIBUTE_PRIORITY = 8 };

// CUjit_option.
enum JitOption : int { JIT_ERROR_LOG = 5, JIT_ERROR_LOG_BYTES = 6 };

// CUgraphExecUpdateResult and CUgraphExecUpdateResultInfo.
enum UpdateResult : int { UPDATE_SUCCESS = 0, UPDATE_TOPOLOGY_CHANGED = 2, UPDATE_NODE_TYPE_CHANGED = 3 };
struct UpdateInfo {
    int result;
    void* node;
    void* node_from;
};

// CUgraphNodeType.
enum NodeType : int { NODE_KERNEL = 0, NODE_COPY = 1, NODE_SET = 2, NODE_HOST = 3, NODE_GRAPH = 4, NODE_EMPTY = 5 };

typedef void (*HostFunction)(void* data);

}  // namespace sim
