//! Weight matrices applied to tokens: f32, f16 and bf16 by the product of matrices, q4_0 and q8_0 by the product with
//! weights in groups, or decoded. Weights in other blocks are in f16 since their upload.

use super::get_rows::{decode, expect_readable};
use super::{Call, ELEMENTWISE, F16_PRODUCTS, KEPT_PRODUCTS, expect_known};
use crate::device::ascend::acl::{Array, Type};
use crate::device::ascend::chip::{Chip, Quantized};
use crate::device::ascend::split::{LEN, Matrix, Split};
use crate::profile::{Activations, Profile, Weights};
use trueup_blocks::DType;
use trueup_graph::TensorType;

/// Longest rows of weights in groups.
const SIZE_MAX: i64 = 65_535;

/// Most rows of them at once: pieces of a larger matrix begin at multiples of 32 bytes, codes and scales alike.
const ROWS_MAX: i64 = SIZE_MAX / 32 * 32;

/// Elements of weights that are decoded at once.
const DECODED_MAX: i64 = 16 << 20;

pub fn profile(inputs: &[TensorType], chip: &Chip) -> Result<Profile, String> {
    expect_known("x", &inputs[1])?;
    if let Some(decoded) = chip.decoded_type(inputs[0].dtype) {
        return Ok(Profile { weights: Weights::F16, ..plain(decoded, chip) });
    }
    expect_readable("w", &inputs[0], chip)?;
    if Split::of(&inputs[0]).is_none() {
        return Ok(plain(inputs[0].dtype, chip));
    }
    let columns = inputs[0].shape[0] as i64;
    if columns > SIZE_MAX {
        return Err(format!("rows of {columns} exceed the limit of {SIZE_MAX} for products with grouped weights"));
    }
    let output = if chip.quantized_products == Quantized::Both { DType::F16 } else { DType::F32 };
    // Codes times scales become f16 before they are multiplied.
    Ok(Profile { activations: Activations::F16, weights: Weights::F16, output, ..ELEMENTWISE })
}

/// What is declared of products of floating-point weights.
pub fn plain(dtype: DType, chip: &Chip) -> Profile {
    if cube_math(dtype, chip) == KEPT_PRODUCTS {
        return ELEMENTWISE;
    }
    let weights = if dtype == DType::F16 { Weights::Unchanged } else { Weights::F16 };
    // A cube that could take f32 writes f16 where it is told to take f16, whatever the type of the result.
    let output = if chip.f32_products { DType::F16 } else { DType::F32 };
    Profile { activations: Activations::F16, weights, output, ..ELEMENTWISE }
}

/// How the cube takes weights of a type.
pub fn cube_math(dtype: DType, chip: &Chip) -> i8 {
    if dtype != DType::F16 && chip.f32_products { KEPT_PRODUCTS } else { F16_PRODUCTS }
}

pub fn compose(call: &Call) -> Result<(), String> {
    if call.is_in_blocks(0)? {
        return in_blocks(call);
    }
    let (w, x, out) = (call.input(0)?, call.input_f32(1)?, call.output()?);
    let x = x.clone();
    let math = cube_math(call.weight_type(0), call.engine.chip);
    let is_one = x.sizes[0] * x.sizes[1] == 1;
    if is_one {
        let [w, x, out] = [w, x, out].map(|array| array.ordered(&[2, 3]));
        return multiply(call, &x, &w, &out, math);
    }
    // Each matrix of a stack is applied to neighbouring batches.
    let stack = |array: Array, outer: [i64; 2]| array.split(0, outer[0]).split(2, outer[1]);
    let outer = [w.sizes[0], w.sizes[1]];
    let w = w.inserted(1).inserted(3).exchanged(4, 5);
    call.engine.queue.matmul(&stack(x, outer), &w, &stack(out, outer), math)
}

/// `out = x w'`, of matrices.
pub fn multiply(call: &Call, x: &Array, w: &Array, out: &Array, math: i8) -> Result<(), String> {
    call.engine.queue.mm(x, &w.clone().exchanged(0, 1), out, math)
}

fn in_blocks(call: &Call) -> Result<(), String> {
    let (x, out, w) = (call.input(1)?, call.output()?, call.ty(0));
    let [columns, rows, w2, w3] = w.shape.sizes();
    let ([n3, n2], tokens) = ([x.sizes[0], x.sizes[1]].map(|size| size as usize), x.sizes[2]);
    let x = call.gathered(&x, Type::F16)?;
    let x = x.clone().under(&[(n3 * n2) as i64, tokens, columns as i64]);
    let out = out.under(&[(n3 * n2) as i64, tokens, rows as i64]);
    let matrices = call.matrices(0)?;
    for batch in 0..n3 * n2 {
        let (j, i) = (batch / n2, batch % n2);
        let matrix = &matrices[j / (n3 / w3) * w2 + i / (n2 / w2)];
        let of_batch = |array: &Array| array.clone().part(0, batch as i64, 1).ordered(&[1, 2]);
        apply(call, matrix, &of_batch(&x), &of_batch(&out))?;
    }
    Ok(())
}

/// One matrix in blocks applied to tokens in f16: `out [tokens, rows]`.
pub fn apply(call: &Call, matrix: &Matrix, x: &Array, out: &Array) -> Result<(), String> {
    let rows = matrix.codes.sizes[0];
    let columns = matrix.codes.sizes[1];
    let (most, decoded) = match call.engine.chip.quantized_products {
        // Rows of one group would be channels of their own, which cards compute with in another way than is declared.
        Quantized::Both if columns > LEN as i64 => (ROWS_MAX, false),
        _ => ((DECODED_MAX / columns.max(1)).max(1), true),
    };
    for first in (0..rows).step_by(most as usize) {
        let count = most.min(rows - first);
        let (matrix, out) = (matrix.rows(first, count), out.clone().part(1, first, count));
        if decoded { multiply_decoded(call, &matrix, x, &out)? } else { multiply_grouped(call, &matrix, x, &out)? }
    }
    Ok(())
}

fn multiply_grouped(call: &Call, matrix: &Matrix, x: &Array, out: &Array) -> Result<(), String> {
    let queue = &call.engine.queue;
    let result = call.room(Type::F16, &out.sizes)?;
    let [codes, scales] = [&matrix.codes, &matrix.scales].map(|array| array.clone().exchanged(0, 1));
    queue.weight_quantized_matmul(x, &codes, &scales, None, None, None, None, LEN as i32, &result)?;
    queue.copy_to(out, &result)
}

fn multiply_decoded(call: &Call, matrix: &Matrix, x: &Array, out: &Array) -> Result<(), String> {
    let weights = call.room(Type::F16, &matrix.codes.sizes)?;
    decode(call, matrix, &weights)?;
    let result = call.room(Type::F32, &out.sizes)?;
    let wide = call.room(Type::F32, &x.sizes)?;
    call.engine.queue.cast(x, Type::F32, &wide)?;
    multiply(call, &wide, &weights, &result, F16_PRODUCTS)?;
    call.engine.queue.copy_to(out, &result)
}
