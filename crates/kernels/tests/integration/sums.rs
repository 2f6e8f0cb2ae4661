//! Sums of rows and columns.

use crate::scalar;
use trueup_kernels::samples::numbers;
use trueup_kernels::{Instructions, Isa, Rows, STEPS, SUMS, mix_f32, multiply_add, squares, sum_columns, sum_of};

#[test]
fn columns_have_the_bits_of_rows() {
    for (len, columns) in [(1, 1), (8, 64), (9, 7), (130, 33)] {
        let x: Vec<f32> = (0..len * columns).map(|i| (i as f32).sin() * 3e7).collect();
        let mut sums = vec![0.0; columns];
        sum_columns(&x, len, columns, &mut sums);
        for (j, sum) in sums.iter().enumerate() {
            let column: Vec<f32> = x[j..].iter().step_by(columns).copied().collect();
            assert_eq!(sum.to_bits(), (sum_of(&column) as f32).to_bits(), "{len} elements, column {j}");
        }
    }
}

#[test]
fn every_element_is_summed_once() {
    for len in [0, 1, 7, 8, 9, 257] {
        let x: Vec<f32> = (0..len).map(|i| i as f32).collect();
        let last = f64::from(len as u32) - 1.0;
        assert_eq!(sum_of(&x), if len == 0 { 0.0 } else { last * (last + 1.0) / 2.0 });
        let expected: f64 = (0..len).map(|i| (f64::from(i as u32) - 2.0).powi(2)).sum();
        assert_eq!(squares(&x, 2.0), expected);
    }
}

#[test]
fn rows_in_parts_have_the_sums_of_all_rows() {
    let (count, len, queries) = (5 * STEPS + 3, 21, 3);
    let (cells, weights) = (numbers(count * len, 1), numbers(count * queries, 2));
    let (rows, weights) = (Rows::dense(&cells, count, len), Rows::dense(&weights, queries, count));
    for isa in Isa::available() {
        let instructions = Instructions::of(isa).unwrap();
        let (mut whole, mut parts) = (vec![0.0; len * queries], vec![0.0; len * queries]);
        mix_f32(instructions, rows, weights, &mut whole);
        for first in (0..count).step_by(2 * STEPS) {
            let part = first..count.min(first + 2 * STEPS);
            let cells: Vec<f32> = (0..queries).flat_map(|t| weights.row(t)[part.clone()].to_vec()).collect();
            let weights = Rows::dense(&cells, queries, part.len());
            mix_f32(instructions, rows.part(part), weights, &mut parts);
        }
        assert_eq!(parts, whole, "{isa}");
    }
}

#[test]
fn chains_reach_the_sum_of_the_geometric_series() {
    let mut sums = [0.0; SUMS];
    multiply_add(scalar(), 200, 0.5, &mut sums);
    assert_eq!(sums, [2.0; SUMS]);
}
