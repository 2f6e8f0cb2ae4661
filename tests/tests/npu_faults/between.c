/* Stands between the device `npu` and its simulator, under the simulator's name, and asks for what a backend with one mistake would ask for.
 *
 *   device ── the functions below ── libtrueup_npu_sim_behind.so          all other functions are found there: this library is linked with it
 *
 * -DMISUSE=NAME says which mistake; with NONE nothing is changed. The declarations are the part of the interface that stands between. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NONE,
    NOT_SYNCHRONIZED,     /* what is downloaded is read before it has come */
    FREED_EARLY,          /* the memory of a result is given back while it is still computed */
    SMALL_WORKSPACE,      /* half of the workspace that a product asks for */
    MISALIGNED_SCALES,    /* scales begin in the middle of a unit of 32 bytes */
    TRANSPOSED_STRIDES,   /* a matrix is shown as if its rows were its columns */
    WRONG_GROUP,          /* scales are said to be of 64 codes each */
    NO_INT4_BIAS,         /* codes of 4 bits lie as in a file, 8 more than they mean */
    EVENT_NOT_WAITED_FOR, /* a card takes what another is still computing */
};

typedef struct aclTensor aclTensor;
typedef struct aclOpExecutor aclOpExecutor;

#define BEHIND "libtrueup_npu_sim_behind.so"
/* The simulator's own function of that name. */
#define REAL(name) ((__typeof__(&name))behind(#name))

static void *behind(const char *name) {
    void *library = dlopen(BEHIND, RTLD_NOW | RTLD_NOLOAD);
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) {
        fprintf(stderr, "%s: %s is not there\n", BEHIND, name);
        abort();
    }
    return found;
}

/* What tensors were made of: the last ones, for handles live for one call. */
typedef struct {
    aclTensor *handle;
    uint64_t rank;
    int64_t dims[8], strides[8];
    int64_t offset;
    int64_t storage;
    int type;
    void *data;
} Made;

enum { MADE_MAX = 64, INT4 = 29, ND = 2, DEVICE_TO_HOST = 2, HOST_TO_DEVICE = 1 };
static _Thread_local Made made[MADE_MAX];
static _Thread_local unsigned made_count;

aclTensor *aclCreateTensor(const int64_t *dims, uint64_t rank, int type, const int64_t *strides, int64_t offset, int format, const int64_t *storage,
                           uint64_t storage_rank, void *data) {
    aclTensor *handle = REAL(aclCreateTensor)(dims, rank, type, strides, offset, format, storage, storage_rank, data);
    Made *one = &made[made_count++ % MADE_MAX];
    *one = (Made){.handle = handle, .rank = rank, .offset = offset, .storage = 1, .type = type, .data = data};
    if (rank > 8 || !strides) {
        fprintf(stderr, "a tensor of %llu dimensions\n", (unsigned long long)rank);
        abort();
    }
    memcpy(one->dims, dims, rank * sizeof *dims);
    memcpy(one->strides, strides, rank * sizeof *strides);
    for (uint64_t d = 0; d < storage_rank; d++) {
        one->storage *= storage[d];
    }
    return handle;
}

static Made made_of(const aclTensor *handle) {
    for (unsigned i = 1; i <= MADE_MAX && i <= made_count; i++) {
        if (made[(made_count - i) % MADE_MAX].handle == handle) {
            return made[(made_count - i) % MADE_MAX];
        }
    }
    fprintf(stderr, "a tensor that was not made here\n");
    abort();
}

static aclTensor *make(const Made *one) {
    return REAL(aclCreateTensor)(one->dims, one->rank, one->type, one->strides, one->offset, ND, &one->storage, 1, one->data);
}

/* Missing synchronization, and events that are not waited for. */

int aclrtMemcpyAsync(void *target, size_t room, const void *source, size_t bytes, int kind, void *stream);
int aclrtRecordEvent(void *event, void *stream);

/* The kind of the last copy, and the event behind the last download, until it is waited for. An event that is not recorded right behind a copy is behind what is computed. */
static _Thread_local int last_kind;
static _Thread_local int has_copied;
static _Thread_local void *downloaded;
static _Thread_local void *computed;

int aclrtMemcpyAsync(void *target, size_t room, const void *source, size_t bytes, int kind, void *stream) {
    last_kind = kind;
    has_copied = 1;
    return REAL(aclrtMemcpyAsync)(target, room, source, bytes, kind, stream);
}

int aclrtRecordEvent(void *event, void *stream) {
    if (last_kind == DEVICE_TO_HOST) {
        downloaded = event;
    }
    computed = has_copied ? NULL : event;
    has_copied = 0;
    return REAL(aclrtRecordEvent)(event, stream);
}

/* Whoever waits again, before the memory is used for something else, does wait. */
int aclrtSynchronizeEvent(void *event) {
    if (MISUSE == NOT_SYNCHRONIZED && downloaded == event) {
        downloaded = NULL;
        return 0;
    }
    if (MISUSE == EVENT_NOT_WAITED_FOR && computed == event) {
        return 0;
    }
    return REAL(aclrtSynchronizeEvent)(event);
}

/* Memory, and the product of matrices: where the last result lies. */

enum { TAKEN_MAX = 4096 };
static struct {
    char *begin;
    size_t bytes;
} taken[TAKEN_MAX];
static char *result, *freed;

int aclrtMalloc(void **address, size_t bytes, int policy) {
    int code = REAL(aclrtMalloc)(address, bytes, policy);
    for (int i = 0; code == 0 && MISUSE == FREED_EARLY && i < TAKEN_MAX; i++) {
        if (!taken[i].begin) {
            taken[i].begin = *address;
            taken[i].bytes = bytes;
            break;
        }
    }
    return code;
}

int aclrtFree(void *address) {
    for (int i = 0; i < TAKEN_MAX; i++) {
        if (taken[i].begin == address) {
            taken[i].begin = NULL;
        }
    }
    return freed && freed == address ? 0 : REAL(aclrtFree)(address);
}

int aclnnMmGetWorkspaceSize(const aclTensor *a, const aclTensor *b, aclTensor *out, int8_t math, uint64_t *bytes, aclOpExecutor **executor) {
    int code = REAL(aclnnMmGetWorkspaceSize)(a, b, out, math, bytes, executor);
    if (MISUSE == SMALL_WORKSPACE) {
        *bytes /= 2;
    }
    result = made_of(out).data;
    return code;
}

int aclnnMm(void *workspace, uint64_t bytes, aclOpExecutor *executor, void *stream) {
    int code = REAL(aclnnMm)(workspace, bytes, executor, stream);
    for (int i = 0; MISUSE == FREED_EARLY && !freed && i < TAKEN_MAX; i++) {
        if (taken[i].begin && taken[i].begin <= result && result < taken[i].begin + taken[i].bytes) {
            freed = taken[i].begin;
            REAL(aclrtFree)(freed);
        }
    }
    return code;
}

/* Products with weights in groups: other weights, scales or groups than there are. */

int aclrtSynchronizeDevice(void);
int aclrtMemcpy(void *target, size_t room, const void *source, size_t bytes, int kind);

/* Codes of 4 bits, each 8 more than it was; once for each matrix. */
static void put_bias_back(const Made *weight) {
    static void *done[TAKEN_MAX];
    int place = 0;
    while (done[place] && done[place] != weight->data) {
        place++;
    }
    if (done[place] || place + 1 == TAKEN_MAX) {
        return;
    }
    done[place] = weight->data;
    size_t bytes = (size_t)(weight->dims[0] * weight->dims[1]) / 2;
    unsigned char *codes = malloc(bytes);
    REAL(aclrtSynchronizeDevice)();
    REAL(aclrtMemcpy)(codes, bytes, weight->data, bytes, DEVICE_TO_HOST);
    for (size_t i = 0; i < bytes; i++) {
        codes[i] ^= 0x88;
    }
    REAL(aclrtMemcpy)(weight->data, bytes, codes, bytes, HOST_TO_DEVICE);
    free(codes);
}

int aclnnWeightQuantBatchMatmulV2GetWorkspaceSize(const aclTensor *x, const aclTensor *weight, const aclTensor *scale, const aclTensor *offset,
                                                  const aclTensor *quant_scale, const aclTensor *quant_offset, const aclTensor *bias, int group,
                                                  const aclTensor *out, uint64_t *bytes, aclOpExecutor **executor) {
    Made codes = made_of(weight), scales = made_of(scale);
    if (MISUSE == MISALIGNED_SCALES) {
        scales.data = (char *)scales.data + 16;
        scale = make(&scales);
    }
    if (MISUSE == TRANSPOSED_STRIDES) {
        codes.strides[0] = codes.dims[1];
        codes.strides[1] = 1;
        weight = make(&codes);
    }
    if (MISUSE == NO_INT4_BIAS && codes.type == INT4) {
        put_bias_back(&codes);
    }
    return REAL(aclnnWeightQuantBatchMatmulV2GetWorkspaceSize)(x, weight, scale, offset, quant_scale, quant_offset, bias,
                                                               MISUSE == WRONG_GROUP ? 2 * group : group, out, bytes, executor);
}
