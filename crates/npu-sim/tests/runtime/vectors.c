/* Adds two vectors on the first device, as a program that calls CANN from C does. The declarations are the part of the interface that it uses. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

typedef struct aclTensor aclTensor;
typedef struct aclScalar aclScalar;
typedef struct aclOpExecutor aclOpExecutor;

int aclInit(const char *path);
int aclFinalize(void);
const char *aclGetRecentErrMsg(void);
const char *aclrtGetSocName(void);
int aclrtGetDeviceCount(uint32_t *count);
int aclrtSetDevice(int32_t device);
int aclrtResetDevice(int32_t device);
int aclrtMalloc(void **pointer, size_t bytes, int policy);
int aclrtFree(void *pointer);
int aclrtMemcpy(void *target, size_t room, const void *source, size_t count, int kind);
int aclrtCreateStream(void **stream);
int aclrtDestroyStream(void *stream);
int aclrtSynchronizeStream(void *stream);
int aclrtSynchronizeStreamWithTimeout(void *stream, int32_t milliseconds);
int aclrtMemsetAsync(void *pointer, size_t room, int32_t value, size_t count, void *stream);
aclTensor *aclCreateTensor(const int64_t *dims, uint64_t rank, int type, const int64_t *strides, int64_t offset, int format,
                           const int64_t *storage, uint64_t storage_rank, void *data);
int aclDestroyTensor(const aclTensor *tensor);
aclScalar *aclCreateScalar(void *value, int type);
int aclDestroyScalar(const aclScalar *scalar);
int aclnnAddGetWorkspaceSize(const aclTensor *a, const aclTensor *b, const aclScalar *alpha, aclTensor *out, uint64_t *size,
                             aclOpExecutor **executor);
int aclnnAdd(void *workspace, uint64_t size, aclOpExecutor *executor, void *stream);

enum { COUNT = 8, FLOAT = 0, ND = 2, HOST_TO_DEVICE = 1, DEVICE_TO_HOST = 2 };

static void check(int code, const char *what) {
    if (code != 0) {
        const char *message = aclGetRecentErrMsg();
        fprintf(stderr, "%s: %d %s\n", what, code, message ? message : "");
        exit(1);
    }
}
#define CHECK(call) check(call, #call)

static void *upload(const float *values) {
    void *pointer = NULL;
    CHECK(aclrtMalloc(&pointer, COUNT * sizeof(float), 0));
    CHECK(aclrtMemcpy(pointer, COUNT * sizeof(float), values, COUNT * sizeof(float), HOST_TO_DEVICE));
    return pointer;
}

/* Asks a stream for work while the process has no room for another thread, and once more when it has. */
static int fill_without_threads(void *data, void *stream) {
    struct rlimit limit;
    unsigned long pages = 0;
    FILE *sizes = fopen("/proc/self/statm", "r");
    if (sizes == NULL || fscanf(sizes, "%lu", &pages) != 1 || getrlimit(RLIMIT_AS, &limit) != 0) {
        return 1;
    }
    fclose(sizes);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = pages * (unsigned long)sysconf(_SC_PAGESIZE) + (1 << 19);
    setrlimit(RLIMIT_AS, &limit);
    int refused = aclrtMemsetAsync(data, 4, 1, 4, stream);
    limit.rlim_cur = before;
    setrlimit(RLIMIT_AS, &limit);
    int nothing = aclrtSynchronizeStreamWithTimeout(stream, 2000);
    int taken = aclrtMemsetAsync(data, 4, 1, 4, stream);
    printf("%d %d %d %d\n", refused, nothing, taken, aclrtSynchronizeStreamWithTimeout(stream, 2000));
    return 0;
}

int main(int count, char **arguments) {
    const char *way = count > 1 ? arguments[1] : "right";
    const int64_t shape[] = {COUNT};
    float a[COUNT], b[COUNT], sum[COUNT] = {0}, one = 1.0f;
    for (int i = 0; i < COUNT; i++) {
        a[i] = (float)i;
        b[i] = (float)(i + 3);
    }
    uint32_t devices = 0;
    void *stream = NULL;
    CHECK(aclInit(NULL));
    CHECK(aclrtGetDeviceCount(&devices));
    CHECK(aclrtSetDevice(0));
    CHECK(aclrtCreateStream(&stream));
    void *data[] = {upload(a), upload(b), upload(sum)};
    if (strcmp(way, "follow") == 0) {
        return *(volatile int *)data[0];
    }
    if (strcmp(way, "threadless") == 0) {
        return fill_without_threads(data[2], stream);
    }
    aclTensor *tensors[3];
    for (int i = 0; i < 3; i++) {
        tensors[i] = aclCreateTensor(shape, 1, FLOAT, NULL, 0, ND, shape, 1, data[i]);
    }
    aclScalar *alpha = aclCreateScalar(&one, FLOAT);
    uint64_t size = 0;
    aclOpExecutor *executor = NULL;
    void *workspace = NULL;
    CHECK(aclnnAddGetWorkspaceSize(tensors[0], tensors[1], alpha, tensors[2], &size, &executor));
    if (size > 0) {
        CHECK(aclrtMalloc(&workspace, size, 0));
    }
    CHECK(aclnnAdd(workspace, size, executor, stream));
    if (strcmp(way, "unsynchronized") != 0) {
        CHECK(aclrtSynchronizeStream(stream));
    }
    CHECK(aclrtMemcpy(sum, sizeof(sum), data[2], sizeof(sum), DEVICE_TO_HOST));
    printf("%s: %u devices:", aclrtGetSocName(), devices);
    for (int i = 0; i < COUNT; i++) {
        printf(" %g", sum[i]);
    }
    printf("\n");
    for (int i = 0; i < 3; i++) {
        CHECK(aclDestroyTensor(tensors[i]));
        CHECK(aclrtFree(data[i]));
    }
    if (workspace != NULL) {
        CHECK(aclrtFree(workspace));
    }
    CHECK(aclDestroyScalar(alpha));
    CHECK(aclrtDestroyStream(stream));
    CHECK(aclrtResetDevice(0));
    CHECK(aclFinalize());
    return 0;
}
