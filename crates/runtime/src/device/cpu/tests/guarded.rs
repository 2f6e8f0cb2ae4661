//! Products of the whole device with every kernel's arguments between guard pages: each type of weights, packed or not,
//! for each instruction set, with rows, columns and tokens that fill no register and no panel.

use super::*;
use trueup_graph::op::{Gated, MulMat, MulMatGated};
use trueup_guard::{Side, expect_in_child, is_child};

/// The device with these sides at guard pages, and without.
fn devices(isa: Isa, repack: bool) -> (Cpu, Vec<Cpu>) {
    let with = |guards| {
        let mut cpu = Cpu::new(CpuOptions { threads: 2, isa: Some(isa), repack }).unwrap();
        cpu.instructions = cpu.instructions.with_guards(guards);
        cpu
    };
    (with(None), Side::BOTH.into_iter().map(|side| with(Some(side))).collect())
}

/// Runs in a child, where a kernel that leaves its slices dies; elsewhere starts the child.
fn between_guards(test: &str, cases: impl Fn(DType) -> Vec<(Op, Vec<Given>)>) {
    if !is_child() {
        return expect_in_child(&format!("{}::{test}", module_path!()));
    }
    for (isa, repack) in Isa::available().into_iter().flat_map(|isa| [(isa, true), (isa, false)]) {
        let (plain, guarded) = devices(isa, repack);
        for (op, inputs) in MATRICES.into_iter().flat_map(&cases) {
            let expected = run(&plain, &op, &inputs).unwrap();
            for cpu in &guarded {
                let what = inputs[0].ty;
                assert_eq!(run(cpu, &op, &inputs).unwrap(), expected, "{op:?} of {what}, {isa}, repack {repack}");
            }
        }
    }
}

/// Columns: one to two registers and blocks, and what fills neither.
fn lens(dtype: DType) -> &'static [usize] {
    match dtype.block_len() {
        1 => &[1, 7, 31, 32, 33, 65, 257],
        32 => &[32, 64, 96, 288],
        _ => &[256, 512],
    }
}

#[test]
fn products_stay_within_their_slices() {
    between_guards("products_stay_within_their_slices", |dtype| {
        let shapes = [(1, 1), (7, 2), (8, 3), (9, 4), (17, 5), (33, 9)];
        let cases = lens(dtype).iter().flat_map(|len| shapes.map(|(rows, tokens)| (*len, rows, tokens)));
        let inputs = |(len, rows, tokens)| vec![weight(dtype, &[len, rows], 1), activation(&[len, tokens], 2)];
        cases.map(|case| (MulMat.into(), inputs(case))).collect()
    });
}

#[test]
fn gated_products_stay_within_their_slices() {
    between_guards("gated_products_stay_within_their_slices", |dtype| {
        let shapes = [(1, 1), (9, 4), (17, 5)];
        let cases = lens(dtype).iter().flat_map(|len| shapes.map(|(rows, tokens)| (*len, rows, tokens)));
        let inputs = |(len, rows, tokens)| {
            vec![weight(dtype, &[len, rows], 1), weight(dtype, &[len, rows], 3), activation(&[len, tokens], 2)]
        };
        cases.map(|case| (MulMatGated { gated: Gated::Swiglu }.into(), inputs(case))).collect()
    });
}
