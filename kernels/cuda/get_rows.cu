// y[k, i, t] = table[k, index[i, t], t], decoded: table [width, rows, tables] of any stored type, index i32 [count,
// tables], y f32 [width, count, tables]. A thread for each element. Of weights in planes (split_blocks.cuh) too.
#include "split_blocks.cuh"

// Writes element k of a row, as `element(distance, k)` gives it for the row that starts at that distance.
template <class Element>
DEVICE void get_rows(const View& table, const View& index, const View& y, Fault* fault, Element element) {
    wait_for_turn();
    const Index number = thread_number(), width = y.sizes[0];
    if (number >= elements(y)) return;
    const Index k = number % width, place = number / width;
    const Index i = place % y.sizes[1], t = place / y.sizes[1];
    const Index row = integer_at(index, i, t);
    if (!lies_within(row, table.sizes[1], fault)) return;
    const Index distance = row * table.steps[1] + t * table.steps[2];
    cells_to_write<float>(y)[k * y.steps[0] + i * y.steps[1] + t * y.steps[2]] = element(distance, k);
}

#define GET_ROWS(type, F)                                                                                                     \
    KERNEL(get_rows_##type, View table, View index, View y, Fault* fault) {                                                   \
        get_rows(table, index, y, fault, [&](Index distance, Index k) { return row_at<F>(table, distance)[k]; });              \
    }

#define GET_ROWS_SPLIT(type, S)                                                                                               \
    KERNEL(get_rows_split_##type, View table, unsigned char* rest, unsigned char* heads, View index, View y, Fault* fault) {  \
        const Planes planes{table.data, rest, heads};                                                                         \
        get_rows(table, index, y, fault, [&](Index distance, Index k) {                                                       \
            return split_element<S>(planes, (distance + k) / S::File::LEN, (int)(k % S::File::LEN));                          \
        });                                                                                                                   \
    }

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
GET_ROWS(iq4_xs, Iq4_xs)
GET_ROWS(mxfp4, Mxfp4)
GET_ROWS(nvfp4, Nvfp4)
GET_ROWS(tq1_0, Tq1_0)
GET_ROWS(tq2_0, Tq2_0)

FOR_EACH_SPLIT(GET_ROWS_SPLIT)
