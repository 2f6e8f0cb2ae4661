use super::{Rule, exactly, expect, expect_activation};
use crate::case::{Case, Fill};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// `y = a o b` for each element. Each dimension of one is repeated where its size divides that of the other (a bias,
/// `[n]` to `[n, tokens]`; 0 is a multiple of every size); the output has the larger.
///
/// Inputs: `a` an activation, `b` an activation or an f32, f16 or bf16 weight. Output: the type of `a`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Arithmetic {
    /// `a + b`.
    Add,
    /// `a - b`.
    Sub,
    /// `a b`.
    Mul,
    /// `a / b`; infinite where `b` alone is 0, NaN where both are.
    Div,
    /// `a^b`; NaN for negative `a` and fractional `b`, 1 where `b` is 0.
    Pow,
}

impl Arithmetic {
    /// All members, in the order of their names.
    pub const ALL: [Arithmetic; 5] =
        [Arithmetic::Add, Arithmetic::Sub, Arithmetic::Mul, Arithmetic::Div, Arithmetic::Pow];
}

impl Rule for Arithmetic {
    const NAMES: &'static [&'static str] = &["add", "sub", "mul", "div", "pow"];

    fn name(&self) -> &'static str {
        Self::NAMES[*self as usize]
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [a, b] = exactly(inputs)?;
        expect_activation("a", &a)?;
        expect(b.dtype.is_float(), || format!("b must be floating point, not {}", b.dtype))?;
        let shape = a.shape.repeated_with(&b.shape);
        let shape = shape.ok_or_else(|| format!("a {} and b {} cannot be broadcast to one shape", a.shape, b.shape))?;
        Ok(TensorType { dtype: a.dtype, shape })
    }

    fn cases() -> Vec<Case> {
        Arithmetic::ALL.into_iter().flat_map(cases_of).collect()
    }
}

/// Shapes of `a` and `b`: equal, a bias, a scalar, repetition of either and of both, nothing at all, and those of
/// layers.
const SHAPES: [(&[usize], &[usize]); 16] = [
    (&[1], &[1]),
    (&[31], &[31]),
    (&[33, 5], &[33]),
    (&[33, 5], &[1]),
    (&[33, 5], &[1, 5]),
    (&[257, 2, 3], &[1, 1, 3]),
    (&[6, 4, 3, 2], &[3, 2, 1, 2]),
    (&[6, 4, 3, 2], &[2, 4, 3, 1]),
    (&[1], &[33, 5]),
    (&[31], &[31, 2, 3, 2]),
    (&[3, 2, 1, 2], &[6, 4, 3, 2]),
    (&[8, 1, 6], &[2, 5, 3]),
    (&[1, 7], &[65, 1]),
    (&[0, 3], &[1, 3]),
    (&[33, 0], &[33]),
    (&[2048, 64], &[2048]),
];

/// What `a` and `b` hold, for the shapes above.
fn fills(member: Arithmetic) -> &'static [(Fill, Fill)] {
    const SIGNED: (Fill, Fill) = (Fill::Normal(1.0), Fill::Normal(2.0));
    match member {
        // Far apart, too: the smaller one is lost.
        Arithmetic::Add | Arithmetic::Sub => &[SIGNED, (Fill::Normal(1e6), Fill::Uniform(-1e-3, 1e-3))],
        // Beyond the range of f32, too.
        Arithmetic::Mul => &[SIGNED, (Fill::Normal(1e25), Fill::Normal(1e14))],
        // By zero, too.
        Arithmetic::Div => &[SIGNED, (Fill::Integers(-3, 3), Fill::Integers(-2, 2))],
        Arithmetic::Pow => &[
            (Fill::Uniform(0.01, 8.0), Fill::Uniform(-6.0, 6.0)),
            (Fill::Uniform(-3.0, 3.0), Fill::Integers(-3, 5)),
            (Fill::Uniform(-3.0, 3.0), Fill::Uniform(-2.0, 2.0)),
        ],
    }
}

/// Small integers of which no result is rounded.
fn probe(member: Arithmetic) -> (Fill, Fill) {
    match member {
        Arithmetic::Add | Arithmetic::Sub | Arithmetic::Mul => (Fill::Integers(-99, 99), Fill::Integers(-50, 50)),
        Arithmetic::Div => (Fill::Integers(-99, 99), Fill::Constant(-4.0)),
        Arithmetic::Pow => (Fill::Integers(-6, 6), Fill::Integers(0, 6)),
    }
}

fn cases_of(member: Arithmetic) -> Vec<Case> {
    let mut cases = Vec::new();
    let inputs = |(a, b): (&[usize], &[usize]), dtype, (left, right): (Fill, Fill)| {
        [(TensorType::new(DType::F32, a), left), (TensorType::new(dtype, b), right)]
    };
    for shapes in SHAPES {
        for fills in fills(member) {
            cases.push(Case::new(member, &inputs(shapes, DType::F32, *fills)));
        }
        cases.push(Case::probe(member, &inputs(shapes, DType::F32, probe(member))));
    }
    for dtype in [DType::F16, DType::Bf16] {
        for shapes in [SHAPES[1], SHAPES[2], SHAPES[6], SHAPES[10]] {
            cases.push(Case::new(member, &inputs(shapes, dtype, fills(member)[0])));
            cases.push(Case::probe(member, &inputs(shapes, dtype, probe(member))));
        }
    }
    cases
}
