// y[k, i] = table[k, index[i]], decoded: table [width, rows] of any stored type, index i32 [count], y f32 [width, count].
// A thread for each element.
#include "blocks.cuh"

template <class F>
DEVICE void get_rows(const View& table, const View& index, const View& y, Fault* fault) {
    const Index element = thread_number(), width = y.sizes[0];
    if (element >= elements(y)) return;
    const Index k = element % width, i = element / width;
    const Index row = integer_at(index, i);
    if (!lies_within(row, table.sizes[1], fault)) return;
    cells_to_write<float>(y)[k * y.steps[0] + i * y.steps[1]] = row_at<F>(table, row * table.steps[1])[k];
}

#define GET_ROWS(type, F) \
    KERNEL(get_rows_##type, View table, View index, View y, Fault* fault) { get_rows<F>(table, index, y, fault); }

GET_ROWS(f32, Number<float>)
GET_ROWS(f16, Number<half>)
GET_ROWS(bf16, Number<Bf16>)
GET_ROWS(q4_0, Q4_0)
GET_ROWS(q4_1, Q4_1)
GET_ROWS(q5_0, Q5_0)
GET_ROWS(q5_1, Q5_1)
GET_ROWS(q8_0, Q8_0)
GET_ROWS(q8_1, Q8_1)
GET_ROWS(q2_k, Q2_K)
GET_ROWS(q3_k, Q3_K)
GET_ROWS(q4_k, Q4_K)
GET_ROWS(q5_k, Q5_K)
GET_ROWS(q6_k, Q6_K)
GET_ROWS(iq4_nl, Iq4_nl)
