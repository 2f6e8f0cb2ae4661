// Stands in for cuBLASLt: D = alpha A' B + beta C of f16 matrices by columns with f32 sums, as the device asks for it;
// all else is refused. A library of its own, whose products are host functions in the simulator's streams, and so in
// its graphs.

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "sim/half.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

extern "C" int cuLaunchHostFunc(void* stream, void (*function)(void*), void* data);
extern "C" int cuStreamIsCapturing(void* stream, int* status);
extern "C" int cuCtxGetCurrent(void** context);

namespace {

enum Status { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum Type { F32 = 0, F16 = 2 };
constexpr int COMPUTE_F32 = 68, TRANSPOSED = 1, DESCRIPTION_TRANSPOSE_A = 3, PREFERENCE_WORKSPACE = 1;

struct Layout {
    int type;
    uint64_t rows, columns;
    int64_t step;
};

struct Description {
    int transpose_a;
};

struct Preference {
    size_t workspace_bytes;
};

struct Product {
    const half *a, *b;
    const float* c;
    float* d;
    size_t rows, columns, len;
    int64_t a_step, b_step, c_step, d_step;
    float alpha, beta;
    // Of a graph, which may be launched again.
    bool kept;
};

// One chain for each element: what is asked for is exact in f32 products, and sums are in f32.
void compute(void* data) {
    Product* const product = static_cast<Product*>(data);
    for (size_t column = 0; column < product->columns; column++) {
        for (size_t row = 0; row < product->rows; row++) {
            const half *const a = product->a + row * product->a_step, *const b = product->b + column * product->b_step;
            float sum = 0.0f;
            for (size_t k = 0; k < product->len; k++) sum += sim::half_to_float(a[k].bits) * sim::half_to_float(b[k].bits);
            const float before = product->beta == 0.0f ? 0.0f : product->beta * product->c[row + column * product->c_step];
            product->d[row + column * product->d_step] = product->alpha * sum + before;
        }
    }
    if (!product->kept) delete product;
}

std::vector<std::unique_ptr<Product>>& kept() {
    static std::vector<std::unique_ptr<Product>> kept;
    return kept;
}

template <class T>
int destroy(T* made) {
    delete made;
    return SUCCESS;
}

bool fits(const Description& description, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
    const bool types = a.type == F16 && b.type == F16 && c.type == F32 && d.type == F32;
    const bool sizes = a.rows == b.rows && a.columns == d.rows && b.columns == d.columns && c.rows == d.rows && c.columns == d.columns;
    return description.transpose_a == TRANSPOSED && types && sizes;
}

// The library on one card: whose context it was made in.
struct Handle {
    void* context;
};

void* current() {
    void* context = nullptr;
    return cuCtxGetCurrent(&context) == 0 ? context : nullptr;
}

// It loads kernels and launches them in the context of whoever calls, which must be that of the handle's card.
bool is_at_home(const void* handle) { return static_cast<const Handle*>(handle)->context == current(); }

}  // namespace

// 12.4, as the kernels' compiler.
EXPORTED size_t cublasLtGetCudartVersion() { return 12040; }

EXPORTED int cublasLtCreate(void** handle) {
    void* const context = current();
    if (context == nullptr) return NOT_INITIALIZED;
    *handle = new Handle{context};
    return SUCCESS;
}

EXPORTED int cublasLtDestroy(void* handle) { return destroy(static_cast<Handle*>(handle)); }

EXPORTED int cublasLtMatmulDescCreate(Description** description, int compute, int scale) {
    if (compute != COMPUTE_F32 || scale != F32) return NOT_SUPPORTED;
    *description = new Description{0};
    return SUCCESS;
}

EXPORTED int cublasLtMatmulDescDestroy(Description* description) { return destroy(description); }

EXPORTED int cublasLtMatmulDescSetAttribute(Description* description, int attribute, const void* value, size_t bytes) {
    if (attribute != DESCRIPTION_TRANSPOSE_A) return NOT_SUPPORTED;
    if (bytes != sizeof description->transpose_a) return INVALID_VALUE;
    memcpy(&description->transpose_a, value, bytes);
    return SUCCESS;
}

EXPORTED int cublasLtMatrixLayoutCreate(Layout** layout, int type, uint64_t rows, uint64_t columns, int64_t step) {
    if (type != F16 && type != F32) return NOT_SUPPORTED;
    if (step < (int64_t)rows) return INVALID_VALUE;
    *layout = new Layout{type, rows, columns, step};
    return SUCCESS;
}

EXPORTED int cublasLtMatrixLayoutDestroy(Layout* layout) { return destroy(layout); }

EXPORTED int cublasLtMatmulPreferenceCreate(Preference** preference) {
    *preference = new Preference{0};
    return SUCCESS;
}

EXPORTED int cublasLtMatmulPreferenceDestroy(Preference* preference) { return destroy(preference); }

EXPORTED int cublasLtMatmulPreferenceSetAttribute(Preference* preference, int attribute, const void* value, size_t bytes) {
    if (attribute != PREFERENCE_WORKSPACE) return NOT_SUPPORTED;
    if (bytes != sizeof preference->workspace_bytes) return INVALID_VALUE;
    memcpy(&preference->workspace_bytes, value, bytes);
    return SUCCESS;
}

// What the library writes of each way: 64 bytes that name it, the workspace, a status, how full its waves are, and four
// words of its own.
struct Found {
    uint64_t algorithm[8];
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
};

EXPORTED int cublasLtMatmulAlgoGetHeuristic(void* handle, const Description* description, const Layout* a, const Layout* b, const Layout* c, const Layout* d,
                                            const Preference*, int wanted, Found* found, int* count) {
    *count = 0;
    if (wanted < 1) return INVALID_VALUE;
    if (!is_at_home(handle)) return EXECUTION_FAILED;
    if (!fits(*description, *a, *b, *c, *d)) return NOT_SUPPORTED;
    *found = Found{{1}, 0, SUCCESS, 1.0f, {}};
    *count = 1;
    return SUCCESS;
}

EXPORTED int cublasLtMatmul(void* handle, const Description* description, const float* alpha, const void* a, const Layout* a_layout, const void* b,
                            const Layout* b_layout, const float* beta, const void* c, const Layout* c_layout, void* d, const Layout* d_layout,
                            const uint64_t* algorithm, void*, size_t, void* stream) {
    if (!fits(*description, *a_layout, *b_layout, *c_layout, *d_layout) || algorithm == nullptr || *algorithm != 1) return INVALID_VALUE;
    if (!is_at_home(handle)) return EXECUTION_FAILED;
    int capturing = 0;
    if (cuStreamIsCapturing(stream, &capturing) != 0) return EXECUTION_FAILED;
    auto product = std::make_unique<Product>(Product{
        static_cast<const half*>(a), static_cast<const half*>(b), static_cast<const float*>(c), static_cast<float*>(d),
        a_layout->columns, b_layout->columns, a_layout->rows, a_layout->step, b_layout->step, c_layout->step, d_layout->step,
        *alpha, *beta, capturing != 0});
    Product* const data = product.get();
    if (capturing != 0) {
        kept().push_back(std::move(product));
    } else {
        product.release();
    }
    return cuLaunchHostFunc(stream, compute, data) == 0 ? SUCCESS : EXECUTION_FAILED;
}
