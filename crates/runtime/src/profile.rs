//! The numeric profile of an operator: the arithmetic that a device declares for given types.
//!
//! The verifier computes the rounding errors that the declared arithmetic causes, and reports everything beyond them.
//! A profile that claims more precision than the device has therefore fails. A profile that claims less hides faults.

use serde::{Deserialize, Serialize};
use std::fmt;
use trueup_blocks::DType;

/// How one operator computes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Profile {
    /// What happens to activations before they are multiplied.
    pub activations: Activations,
    /// What happens to weights before they are multiplied.
    #[serde(default)]
    pub weights: Weights,
    /// How a product enters the sum.
    pub products: Products,
    /// What sums are kept in.
    pub accumulator: Accumulator,
    /// How many partial sums are kept side by side; 1 is one after the other.
    pub lanes: usize,
    /// The order in which products are added.
    #[serde(default)]
    pub order: Order,
    /// What results are rounded to.
    pub output: DType,
    /// Error of transcendental functions (exp, sin, pow), in units in the last place of f32.
    pub function_ulp: f32,
    /// How the angles of rope are computed.
    pub angles: Angles,
}

/// What happens to activations before they are multiplied with a weight.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activations {
    /// Used as they are.
    Unchanged,
    /// Rounded to f16.
    F16,
    /// Rounded to bf16.
    Bf16,
    /// Blocks of 32 with `d = max |x| / 127` kept in f32 and 8-bit codes `round(x / d)`.
    Q8 {
        /// How codes are rounded.
        rounding: Rounding,
        /// Whether `d` is rounded to f16 when the block is multiplied (codes follow from the unrounded one).
        scale_f16: bool,
    },
    /// Blocks of 32 with codes as in `Q8`, the scale `d` rounded to f16, and the sum of the block's values, `d
    /// sum(codes)`, in f16. Weights above a minimum are multiplied in two parts: `w - m` with the codes, and `m` with
    /// the sum.
    Q8_1 {
        /// How codes are rounded.
        rounding: Rounding,
    },
    /// Blocks of 256 with codes from -127 to 127, halves to even, and an f32 scale `1 / (127 / max |x|)`. Weights
    /// above a minimum are multiplied in two parts: `w - m` with the codes, and `m` with the exact sum of the codes.
    Q8K,
}

/// What happens to weights, or to what stands in their place, before they are multiplied.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weights {
    /// Used as they are stored.
    #[default]
    Unchanged,
    /// Decoded to f32, as they are read everywhere, and that rounded to f16: beyond 65504 infinite.
    F16,
}

/// How a real number becomes a code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rounding {
    /// Halves to the even neighbour.
    HalfEven,
    /// Halves away from zero.
    HalfAway,
    /// Toward zero.
    Truncate,
}

/// How a product enters the sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Products {
    /// Not rounded by itself (fused multiply-add, or integers).
    Exact,
    /// Rounded to the accumulator's type first.
    Rounded,
}

/// What sums are kept in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accumulator {
    /// No sums, or sums without any rounding that counts.
    F64,
    /// f32 throughout.
    F32,
    /// f16 throughout.
    F16,
    /// Exact integers inside a block of 32, f32 between blocks. In q2_k, q3_k, q6_k and nvfp4 the elements with one
    /// scale are 16; each such sub-block counts as a block. In mxfp4 a block has 32 elements; in tq2_0 each 32 of the
    /// 256 count as a block. A block of a format with minima, `w = d q + m`, enters the sum as two products, of
    /// activations in codes `x = dx c`: `(d dx) sum(q c)`, then `m (dx sum(c))`, each factor in parentheses rounded to
    /// f32; `d` and `m` are those of the sub-block and exact. Lanes take whole blocks, with both products.
    Int32ThenF32,
    /// f32 in tensor cores. Every 8 or more exact products are aligned to the largest exponent among them and their
    /// partial sum, and added; what does not fit is cut off, not rounded.
    TensorCore {
        /// Products that are added this way before their sum is added to others in f32, with rounding; 0 is all.
        chain: usize,
    },
}

/// The order in which products are added.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Product `k` to lane `k mod lanes`, in rising order.
    #[default]
    Lanes,
    /// Unknown: the device publishes no order. The lanes are one, as one chain is the noisiest.
    Any,
}

/// How the angles of rope are computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Angles {
    /// Each frequency by `pow` in f32.
    Pow,
    /// Each frequency from the one before, by multiplication in f32.
    Iterated,
    /// In f64, or in sums of two f32, rounded once.
    F64,
}

impl Profile {
    /// The oracle's: f64, nothing rounded that counts.
    pub const EXACT: Profile = Profile {
        activations: Activations::Unchanged,
        weights: Weights::Unchanged,
        products: Products::Exact,
        accumulator: Accumulator::F64,
        lanes: 1,
        order: Order::Lanes,
        output: DType::F64,
        function_ulp: 0.0,
        angles: Angles::F64,
    };

    /// Bytes moved, or f32 arithmetic element by element without functions or sums.
    pub const F32: Profile = Profile { accumulator: Accumulator::F32, output: DType::F32, ..Profile::EXACT };
}

impl fmt::Display for Profile {
    /// One line for reports: `activations unchanged; sums f32 in 8 lanes; output f32`, and behind it what differs from
    /// the usual: exact products, codes rounded with halves to even, exact functions, angles in f64.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let activations = match self.activations {
            Activations::Unchanged => "unchanged",
            Activations::F16 => "f16",
            Activations::Bf16 => "bf16",
            Activations::Q8 { scale_f16: true, .. } => "q8 per 32, f16 scale",
            Activations::Q8 { scale_f16: false, .. } => "q8 per 32, f32 scale",
            Activations::Q8_1 { .. } => "q8 per 32, f16 scale and sum",
            Activations::Q8K => "q8 per 256, f32 scale",
        };
        let rounding = match self.activations {
            Activations::Q8 { rounding, .. } | Activations::Q8_1 { rounding } => match rounding {
                Rounding::HalfEven => "",
                Rounding::HalfAway => ", ties away from zero",
                Rounding::Truncate => ", rounded toward zero",
            },
            Activations::Unchanged | Activations::Q8K | Activations::F16 | Activations::Bf16 => "",
        };
        let sums = match self.accumulator {
            Accumulator::F64 => "f64",
            Accumulator::F32 => "f32",
            Accumulator::F16 => "f16",
            Accumulator::Int32ThenF32 => "i32 in blocks, then f32",
            Accumulator::TensorCore { .. } => "f32 in tensor cores",
        };
        let chain = match self.accumulator {
            Accumulator::TensorCore { chain } if chain > 0 => format!(", {chain} products at a time"),
            _ => String::new(),
        };
        let lanes = match self.order {
            Order::Any => " in any order".to_owned(),
            Order::Lanes if self.lanes > 1 => format!(" in {} lanes", self.lanes),
            Order::Lanes => String::new(),
        };
        let weights = match self.weights {
            Weights::Unchanged => "",
            Weights::F16 => "; weights f16",
        };
        write!(f, "activations {activations}{rounding}{weights}; sums {sums}{chain}{lanes}; output {}", self.output)?;
        match self.products {
            Products::Exact => {}
            Products::Rounded => write!(f, "; products rounded")?,
        }
        if self.function_ulp != 0.0 {
            write!(f, "; functions within {} ulp", self.function_ulp)?;
        }
        match self.angles {
            Angles::F64 => Ok(()),
            Angles::Pow => write!(f, "; angles with pow in f32"),
            Angles::Iterated => write!(f, "; angles iterated in f32"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_from_the_usual_is_said() {
        let usual = Profile { lanes: 8, ..Profile::F32 };
        let q8 = |rounding| Activations::Q8 { rounding, scale_f16: false };
        let cases = [
            (
                Profile { activations: Activations::F16, weights: Weights::F16, ..Profile::F32 },
                "activations f16; weights f16; sums f32; output f32",
            ),
            (usual, "activations unchanged; sums f32 in 8 lanes; output f32"),
            (Profile::EXACT, "activations unchanged; sums f64; output f64"),
            (Profile { order: Order::Any, ..Profile::F32 }, "activations unchanged; sums f32 in any order; output f32"),
            (
                Profile { products: Products::Rounded, ..usual },
                "activations unchanged; sums f32 in 8 lanes; output f32; products rounded",
            ),
            (
                Profile { function_ulp: 1.1, angles: Angles::Pow, ..Profile::F32 },
                "activations unchanged; sums f32; output f32; functions within 1.1 ulp; angles with pow in f32",
            ),
            (
                Profile { angles: Angles::Iterated, ..Profile::F32 },
                "activations unchanged; sums f32; output f32; angles iterated in f32",
            ),
            (
                Profile { activations: q8(Rounding::HalfEven), accumulator: Accumulator::Int32ThenF32, ..Profile::F32 },
                "activations q8 per 32, f32 scale; sums i32 in blocks, then f32; output f32",
            ),
            (
                Profile { activations: q8(Rounding::HalfAway), ..Profile::F32 },
                "activations q8 per 32, f32 scale, ties away from zero; sums f32; output f32",
            ),
            (
                Profile { activations: q8(Rounding::Truncate), ..Profile::F32 },
                "activations q8 per 32, f32 scale, rounded toward zero; sums f32; output f32",
            ),
            (
                Profile { activations: Activations::Q8_1 { rounding: Rounding::HalfEven }, ..Profile::F32 },
                "activations q8 per 32, f16 scale and sum; sums f32; output f32",
            ),
            (
                Profile { activations: Activations::Q8K, ..Profile::F32 },
                "activations q8 per 256, f32 scale; sums f32; output f32",
            ),
        ];
        for (profile, expected) in cases {
            assert_eq!(profile.to_string(), expected);
        }
    }
}
