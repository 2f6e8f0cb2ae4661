//! Products with chosen experts are judged like products with each expert's matrix alone.

use super::*;
use crate::bound::testing::{encoded, f32_type, numbers};
use crate::trace::program::HalfKernels;
use std::ops::Range;
use trueup_graph::Input;
use trueup_graph::op::{MulMat, MulMatId};

/// Elements of a row, rows of an expert, experts.
const SIZES: [usize; 3] = [256, 20, 3];
/// The experts of two tokens.
const IDS: [usize; 4] = [2, 0, 1, 2];
/// Standard deviation of the activations.
const NOISE: f64 = 1e-6;

fn fixture() -> ModelFile {
    ModelFile::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/traces/k-quants.gguf")).unwrap()
}

/// Bytes of a stack of [`SIZES`]. K-quants are those of the fixture's first matrix of the type: there is no encoder.
fn stack(dtype: DType) -> Vec<u8> {
    let (ty, model) = (TensorType::new(dtype, &SIZES), fixture());
    let name = match dtype {
        DType::Q4K => "blk.0.ffn_gate.weight",
        DType::Q5K => "blk.0.ffn_up.weight",
        DType::Q6K => "blk.0.ffn_down.weight",
        _ => return encoded(dtype, &SIZES, &numbers(SIZES.iter().product(), 3)).1,
    };
    model.tensor_bytes(name).unwrap()[..ty.bytes()].to_vec()
}

/// A walk whose graph is one product, and the product's node.
fn walk(op: Op, weights: TensorType, x: TensorType) -> (Walk, Node) {
    let model = Arc::new(fixture());
    let pool = Arc::new(rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap());
    let mut walk = Walk::new(model, DType::F16, CAPACITY_UNIT, pool);
    let w = walk.graph.weight("w", weights);
    let x = walk.graph.input(Input::Mask, x);
    let ids = matches!(op, Op::MulMatId(_)).then(|| TensorType::new(DType::I32, &[IDS.len() / 2, 2]));
    let ids = ids.map(|ty| walk.graph.input(Input::Tokens, ty));
    let inputs: Vec<ValueId> = [w, x].into_iter().chain(ids).collect();
    walk.graph.node("y", None, op, &inputs).unwrap();
    walk.values = vec![None; walk.graph.values().len()];
    let node = walk.graph.nodes()[0].clone();
    (walk, node)
}

/// A matrix or a stack of them.
fn weights(dtype: DType, sizes: &[usize], bytes: &[u8]) -> Value {
    Value::certain(HostTensor::stored(TensorType::new(dtype, sizes), bytes.to_vec()))
}

/// Activations that the trace lacks: in each noisy run they are off by [`NOISE`].
fn uncertain(sizes: &[usize], base: &[f64]) -> Value {
    let member = |member: usize| {
        let off = |(place, x): (usize, &f64)| x + NOISE * sign(7, member, place);
        HostTensor::real(f32_type(sizes), base.iter().enumerate().map(off).collect())
    };
    Value { base: HostTensor::real(f32_type(sizes), base.to_vec()), members: (0..MEMBERS).map(member).collect() }
}

fn ids() -> Value {
    let bytes = IDS.iter().flat_map(|id| (*id as i32).to_le_bytes()).collect();
    Value::certain(HostTensor::stored(TensorType::new(DType::I32, &[IDS.len() / 2, 2]), bytes))
}

/// How llama.cpp multiplies with these weights.
fn profile(walk: &Walk, node: &Node) -> Profile {
    let half = HalfKernels::default();
    Program::LlamaCpp { fused_attention: false, half }.profile(walk.graph(), node, 2)
}

/// Activations of both tokens. Element 0 of each block gives it a scale of 1; element 2 of a token is so close to a tie
/// that noise may cross it, in too few runs to show in [`MEMBERS`].
fn on_a_tie() -> Vec<f64> {
    let mut x: Vec<f64> =
        numbers(2 * SIZES[0], 5).into_iter().map(|x| x.clamp(-1.0, 1.0).round() * 3.0 + 0.2).collect();
    x.iter_mut().step_by(32).for_each(|x| *x = 127.0);
    x.chunks_mut(SIZES[0]).for_each(|token| token[2] = 2.5 - 6.0 * NOISE);
    x
}

#[test]
fn experts_are_judged_like_their_matrices() {
    let [len, rows, _] = SIZES;
    for dtype in [DType::Q8_0, DType::Q4_0, DType::Q4_1, DType::Q5_1, DType::Q4K, DType::Q5K, DType::Q6K] {
        let (ty, bytes) = (TensorType::new(dtype, &SIZES), stack(dtype));
        let (walk_id, node_id) = walk(MulMatId.into(), ty, f32_type(&[len, 1, 2]));
        let x = on_a_tie();
        let inputs = [weights(dtype, &SIZES, &bytes), uncertain(&[len, 1, 2], &x), ids()];
        let found = walk_id.compute(&node_id, &inputs, &profile(&walk_id, &node_id)).unwrap();
        assert!(found.expected.iter().any(|expected| expected.ties > 0.0), "{dtype}: ties are allowed");
        for (pair, expert) in IDS.into_iter().enumerate() {
            let matrix = TensorType::new(dtype, &[len, rows]);
            let (walk, node) = walk(MulMat.into(), matrix, f32_type(&[len, 2]));
            let bytes = &bytes[expert * matrix.bytes()..][..matrix.bytes()];
            let inputs = [weights(dtype, &[len, rows], bytes), uncertain(&[len, 2], &x)];
            let alone = walk.compute(&node, &inputs, &profile(&walk, &node)).unwrap();
            let (places, token) = (pair * rows..(pair + 1) * rows, pair / 2);
            let own = token * rows..(token + 1) * rows;
            assert_eq!(found.expected[places.clone()], alone.expected[own.clone()], "{dtype}, pair {pair}");
            for (found, alone) in found.members.iter().zip(&alone.members) {
                assert_eq!(found[places.clone()], alone[own.clone()], "{dtype}, pair {pair}");
            }
            let limit = |computed: &Computed, rows: Range<usize>| {
                computed.flips.as_ref().unwrap().of_sum(&rows.collect::<Vec<usize>>(), SIZES[1])
            };
            assert!(limit(&found, places) > 0.0 && limit(&alone, own) > 0.0, "{dtype}: sums allow ties");
        }
    }
}

#[test]
fn a_code_on_the_other_side_of_a_tie_passes_in_a_product_with_experts() {
    let [len, rows, _] = SIZES;
    let (ty, bytes) = (TensorType::new(DType::Q8_0, &SIZES), stack(DType::Q8_0));
    let (walk, node) = walk(MulMatId.into(), ty, f32_type(&[len, 1, 2]));
    let inputs = [weights(DType::Q8_0, &SIZES, &bytes), uncertain(&[len, 1, 2], &on_a_tie()), ids()];
    let computed = walk.compute(&node, &inputs, &profile(&walk, &node)).unwrap();
    let stack = Operand::blocks(ty, &bytes);
    // A kernel that rounds element 2 of the first block of token 0 to `code`.
    let judged = |code: f64| {
        let row = Row::declared(&on_a_tie()[..len], profile(&walk, &node).activations);
        let mut x = row.values;
        x[2] = code;
        let product = |row: usize| {
            let mut buffer = Vec::new();
            let products = stack.row(IDS[0] * rows + row, &mut buffer).iter().zip(&x).map(|(w, x)| w * x);
            (row, f64::from(products.sum::<f64>() as f32))
        };
        let values = (0..rows).map(product).collect();
        let known = Known { values, slack: 0.0, sum: None, covers: Vec::new(), beyond: Vec::new() };
        walk.judge(&node, 0, &known, &computed, &profile(&walk, &node)).verdict.passes()
    };
    assert!(judged(2.0) && judged(3.0), "either code of the tie");
    assert!(!judged(0.0) && !judged(4.0), "no other code");
}

#[test]
fn an_expert_that_does_not_exist_has_no_matrix() {
    let [len, rows, experts] = SIZES;
    let (w, x) = (vec![0.0; len * rows * experts], vec![0.0; 2 * len]);
    let operands = [
        Operand::numbers(f32_type(&SIZES), &w),
        Operand::numbers(f32_type(&[len, 2, 1]), &x),
        Operand::integers(TensorType::new(DType::I32, &[2, 1]), &[3, -1]),
    ];
    let columns = Column::of(&MulMatId.into(), &operands);
    assert_eq!(columns, [0, 1].map(|activations| Column { matrix: None, activations }));
    let x = uncertain(&[len, 2, 1], &x);
    let flips = ProductFlips::new(&operands[0], &x, &columns, Activations::Q8K);
    assert_eq!(flips.of_sum(&(0..2 * rows).collect::<Vec<usize>>(), rows), 0.0);
}
