// Each kernel of faults/*.cu: the right ones compute what they should, the others are found, with kernel, block, thread
// and what they did.

#include <cstring>

#include "check.h"

constexpr int ILLEGAL_ADDRESS = 700, LAUNCH_FAILED = 719;

// A launch of blocks of threads on x = 1, 2, 3, ..., with `n` of the kernel.
struct Shape {
    unsigned blocks, threads, shared_bytes;
    int n;
};

// A fault that the driver tells: all of `words` are in its sentence.
struct Told {
    const char* kernel;
    Shape shape;
    int result;
    std::vector<const char*> words;
    // In a library with sanitizers, these tell it, and end the process.
    bool sanitizer_tells = false;
    // Nobody else tells it.
    bool only_sanitizer = false;
};

#if defined(__SANITIZE_ADDRESS__)
constexpr bool SANITIZED = true;
#else
constexpr bool SANITIZED = false;
#endif

// x and y have as many elements as there are threads, but y may have only n.
static int run(const char* kernel, const Shape& shape, std::vector<float>* y_values) {
    fresh_context(0);
    const size_t all = (size_t)shape.blocks * shape.threads;
    const Floats x(counted(all)), y((size_t)shape.n);
    const int launched = launch(kernel, shape.blocks, shape.threads, shape.shared_bytes, nullptr, x.address, y.address, shape.n);
    expect_result(launched, 0, std::string(kernel) + ", launched");
    const int result = cuCtxSynchronize();
    if (result == 0 && y_values != nullptr) *y_values = y.read();
    // An error stays.
    expect_result(cuCtxSynchronize(), result, std::string(kernel) + ", once more");
    return result;
}

static const std::vector<Told> TOLD = {
    {"barrier_after_return", {1, 64, 0, 64}, LAUNCH_FAILED,
     {"kernel barrier_after_return, block (0, 0, 0), thread (", "__syncthreads", "return"}},
    {"barrier_in_branch", {1, 64, 0, 64}, LAUNCH_FAILED,
     {"barrier_in_branch", "waits for ever at __shfl_xor_sync with mask 0xffffffff", "0x55555555 are elsewhere"}},
    {"different_barriers", {1, 64, 0, 64}, LAUNCH_FAILED,
     {"different_barriers", "__syncthreads_count", "is at __syncthreads", " while "}},
    {"warp_sum_after_return", {2, 64, 0, 100}, LAUNCH_FAILED,
     {"warp_sum_after_return, block (1, 0, 0), thread (", "__shfl_xor_sync", "return"}},
    {"halves_with_one_mask", {1, 32, 0, 32}, LAUNCH_FAILED,
     {"halves_with_one_mask", "takes the value of a lane that its mask does not name"}},
    {"halves_with_different_masks", {1, 32, 0, 32}, LAUNCH_FAILED,
     {"halves_with_different_masks, block (0, 0, 0), thread (", "__shfl_sync"}},
    {"halves_of_each_other", {1, 32, 0, 32}, LAUNCH_FAILED,
     {"halves_of_each_other", "a lane that its mask does not name"}},
    {"different_collectives", {1, 32, 0, 32}, LAUNCH_FAILED,
     {"different_collectives", "__shfl_sync", "__any_sync"}},
    {"part_of_a_warp", {1, 16, 0, 16}, LAUNCH_FAILED,
     {"part_of_a_warp", "lanes that a block of this size does not have"}},
    {"trap", {3, 32, 0, 32}, LAUNCH_FAILED,
     {"kernel trap, block (1, 0, 0), thread (5, 0, 0) __trap was called"}},
    {"divides_by_zero", {2, 32, 0, 64}, LAUNCH_FAILED,
     {"divides_by_zero", "divides an integer by zero"}, true},
    {"twice_one_too_many", {2, 128, 0, 200}, ILLEGAL_ADDRESS,
     {"kernel twice_one_too_many, block (1, 0, 0), thread (72, 0, 0) writes byte 800 of an allocation of 800 bytes"}, true},
    {"twice_one_too_many", {3, 128, 0, 256}, ILLEGAL_ADDRESS,
     {"block (2, 0, 0), thread (0, 0, 0) writes byte 1024 of an allocation of 1024 bytes"}},
    {"twice_one_before", {2, 128, 0, 200}, ILLEGAL_ADDRESS,
     {"block (0, 0, 0), thread (0, 0, 0) writes 4 bytes before an allocation of 800 bytes"}, true},
    {"twice_with_wrong_stride", {4, 128, 0, 512}, ILLEGAL_ADDRESS,
     {"twice_with_wrong_stride, block (", "writes byte ", "of an allocation of 2048 bytes"}},
    {"twice_reads_behind", {4, 128, 0, 512}, ILLEGAL_ADDRESS,
     {"twice_reads_behind", "reads byte", "of an allocation of 2048 bytes"}},
    {"twice_of_nothing", {1, 32, 0, 32}, ILLEGAL_ADDRESS,
     {"reads address 0x", "where no allocation is near"}, true},
    {"four_not_aligned", {1, 32, 0, 32}, ILLEGAL_ADDRESS, {}, true, true},
    {"shared_too_small", {2, 64, 256, 128}, ILLEGAL_ADDRESS,
     {"shared_too_small, block (", "thread (63, 0, 0) writes byte 256 of its 256 bytes of dynamic shared memory"}},
    {"too_many_variables", {1, 32, 0, 32}, ILLEGAL_ADDRESS,
     {"too_many_variables", "KiB of stack"}},
    {"copies_not_aligned", {1, 32, 0, 32}, ILLEGAL_ADDRESS,
     {"copies_not_aligned", "no multiple of 16"}},
};

static void check_told() {
    for (const Told& told : TOLD) {
        if (told.only_sanitizer || (SANITIZED && told.sanitizer_tells)) continue;
        const int result = run(told.kernel, told.shape, nullptr);
        expect_result(result, told.result, told.kernel);
        const std::string sentence = sentence_of(result);
        for (const char* words : told.words) {
            const bool there = sentence.find(words) != std::string::npos;
            expect(there, std::string(told.kernel) + ": \"" + words + "\" is not in " + sentence);
        }
    }
}

// What y should be, and the kernels that compute it and something else.
struct Computed {
    Shape shape;
    float (*expected)(int i, const Shape& shape);
    const char* right;
    std::vector<const char*> wrong;
};

static float turned(int i, const Shape& shape) {
    const int threads = (int)shape.threads;
    return (float)(i / threads * threads + threads - 1 - i % threads + 1);
}

static float block_sums(int i, const Shape& shape) {
    const int threads = (int)shape.threads;
    float sum = 0;
    for (int j = 0; j < threads; j++) sum += (float)(i / threads * threads + j + 1);
    return 5.0f * sum;
}

static float other_lane(int i, const Shape&) { return (float)((i ^ 1) + 1); }

static float doubled(int i, const Shape&) { return 2.0f * (float)(i + 1); }

static float doubled_and_turned(int i, const Shape& shape) {
    const int all = shape.n / 2;
    return doubled(i < all ? i : 2 * all - 1 - i, shape);
}

static float warp_sums(int i, const Shape& shape) {
    float sum = 0;
    for (int j = i / 32 * 32; j < i / 32 * 32 + 32 && j < shape.n; j++) sum += (float)(j + 1);
    return sum;
}

static float half_first(int i, const Shape&) { return (float)(i / 16 * 16 + 1); }

static float voted(int i, const Shape&) {
    const int lane = i % 32;
    const auto x = [&](int l) { return (float)(i - lane + l + 1); };
    const float up = x(lane % 8 >= 3 ? lane - 3 : lane), down = x(lane % 16 + 5 < 16 ? lane + 5 : lane);
    const int other = lane ^ 5;
    const float exchanged = x(other < lane / 4 * 4 + 4 ? other : lane);
    return up + 2.0f * down + 4.0f * x(lane / 8 * 8 + 1) + 8.0f * exchanged + 16.0f * 10.0f + 512.0f;
}

static float copied(int i, const Shape&) { return i % 256 >= 124 && i % 256 < 128 ? 0.0f : (float)(i + 1); }

static float same(int i, const Shape&) { return (float)(i + 1); }

static const std::vector<Computed> COMPUTED = {
    {{8, 256, 1024, 2048}, turned, "turn_right", {"turn_without_barrier", "turn_fixed_without_barrier"}},
    {{16, 256, 128, 4096}, block_sums, "sums_right", {"sums_without_last_barrier"}},
    {{8, 64, 256, 512}, other_lane, "neighbour_right", {"neighbour_without_barrier"}},
    {{8, 128, 0, 1000}, doubled, "twice_right", {"twice_without_tail"}},
    {{8, 128, 0, 1000}, warp_sums, "warp_sum_right", {}},
    {{16, 64, 0, 2048}, doubled_and_turned, "tail_right", {"tail_before_the_count"}},
    {{2, 64, 0, 128}, half_first, "halves_right", {}},
    {{2, 64, 0, 128}, voted, "votes_right", {}},
};

static bool computes(const char* kernel, const Computed& computed) {
    std::vector<float> y;
    expect_result(run(kernel, computed.shape, &y), 0, kernel);
    for (size_t i = 0; i < y.size(); i++) {
        if (!(y[i] == computed.expected((int)i, computed.shape))) return false;
    }
    return !y.empty();
}

static void check_computed() {
    for (const Computed& computed : COMPUTED) {
        expect(computes(computed.right, computed), std::string(computed.right) + " computes something else");
        for (const char* wrong : computed.wrong) expect(!computes(wrong, computed), std::string(wrong) + " is not found");
    }
}

// Copies are done early in some blocks, late in others.
static void check_copies(const char* kernel, float (*expected)(int i, const Shape& shape), bool right) {
    constexpr int BLOCKS = 32, ELEMENTS = BLOCKS * 256;
    fresh_context(0);
    const Floats x(counted(ELEMENTS)), y(ELEMENTS);
    expect_result(launch(kernel, BLOCKS, 32, 0, nullptr, x.address, y.address, ELEMENTS), 0, kernel);
    const std::vector<float> values = y.read();
    bool as_expected = true;
    for (int i = 0; i < ELEMENTS; i++) as_expected &= values[(size_t)i] == expected(i, {});
    expect(as_expected == right, std::string(kernel) + (right ? " computes something else" : " is not found"));
}

void check_sanitizer(const char* kernel) {
    for (const Told& told : TOLD) {
        if (told.sanitizer_tells && std::strcmp(told.kernel, kernel) == 0) run(kernel, told.shape, nullptr);
    }
}

void check_faults() {
    check_told();
    check_computed();
    check_copies("copies_right", copied, true);
    check_copies("copies_not_waited_for", copied, false);
    check_copies("copies_over_right", same, true);
    check_copies("copies_over_what_is_read", same, false);
}
