//! The operators: one file each with parameters, formula and type inference. This file is the list.
//!
//! Attention over the KV cache is three operators (`kv_store`, `kv_scores`, `kv_mix`) that find each token's sequence
//! by an index, so prompts of different lengths share a batch without padding or copies. Fusion turns the last two,
//! and the softmax between them, into `kv_attention`. `permute`, `transpose` and `view` are strided views of memory.

mod arithmetic;
mod arrange;
mod cast;
mod concat;
mod diag_mask;
mod flash_attn;
mod gated;
mod get_rows;
mod im2col;
mod index_fill;
mod kv_attention;
mod kv_mix;
mod kv_scores;
mod kv_store;
mod make;
mod mul_mat;
mod mul_mat_gated;
mod mul_mat_id;
mod norm;
mod overlay;
mod pool_2d;
mod rank;
mod reduce;
mod reshape;
mod rms_norm;
mod rope;
mod set_rows;
mod soft_max;
mod ssm_conv;
mod ssm_scan;
mod unary;
mod upscale;
mod window;

use crate::case::{Case, with_views};
use crate::shape::{Shape, TensorType};
pub use arithmetic::Arithmetic;
pub use arrange::Arrange;
pub use cast::Cast;
pub use concat::Concat;
pub use diag_mask::{DiagMask, Triangle};
pub use flash_attn::FlashAttn;
pub use gated::Gated;
pub use get_rows::GetRows;
pub use im2col::Im2Col;
pub use index_fill::IndexFill;
pub use kv_attention::KvAttention;
pub use kv_mix::KvMix;
pub use kv_scores::KvScores;
pub use kv_store::KvStore;
pub use make::{Make, Making};
pub use mul_mat::MulMat;
pub use mul_mat_gated::MulMatGated;
pub use mul_mat_id::MulMatId;
pub use norm::{Norm, NormRule};
pub use overlay::{Overlay, Overlaying};
pub use pool_2d::{Pool2d, Pooling};
pub use rank::{Rank, RankRule};
pub use reduce::{Reduce, Reduction};
pub use reshape::Reshape;
pub use rms_norm::RmsNorm;
pub use rope::{Rope, RopePairs, RopeScaling};
use serde::{Deserialize, Serialize};
pub use set_rows::SetRows;
pub use soft_max::SoftMax;
pub use ssm_conv::SsmConv;
pub use ssm_scan::SsmScan;
use trueup_blocks::DType;
pub use unary::Unary;
pub use upscale::Upscale;
pub use window::Window;

/// The rule of one operator.
trait Rule {
    /// The names in plans, reports and the command line: one, or for a family of operators the names of all its
    /// members.
    const NAMES: &'static [&'static str];

    /// The name of this one.
    fn name(&self) -> &'static str {
        Self::NAMES[0]
    }

    /// The type of the output, or which rule the inputs break.
    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String>;

    /// What the operator suite tries of all members.
    fn cases() -> Vec<Case>;
}

macro_rules! operators {
    ($($name:ident),* $(,)?) => {
        /// One operator with its parameters.
        #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
        #[allow(missing_docs, reason = "each variant is documented at its struct")]
        pub enum Op { $($name($name)),* }

        impl Op {
            /// The name in plans, reports and the command line.
            pub fn name(&self) -> &'static str {
                match self { $(Op::$name(op) => op.name()),* }
            }

            /// The type of the output, or which rule the inputs break.
            ///
            /// Inputs may be views, except the first input of `reshape`, `view` and `kv_store`. The output is a view
            /// only if the operator creates views.
            pub fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
                let dense: Vec<TensorType> = inputs.iter().map(TensorType::dense).collect();
                let output = match self { $(Op::$name(op) => op.infer(&dense)),* }?;
                self.seen(output, inputs)
            }

            /// Names of all operators.
            pub fn names() -> Vec<&'static str> {
                [$(<$name as Rule>::NAMES),*].concat()
            }

            /// What the operator suite tries, operator by operator, on contiguous tensors and then on views.
            pub fn cases() -> Vec<Case> {
                with_views([$(<$name as Rule>::cases()),*].concat())
            }
        }

        $(impl From<$name> for Op {
            fn from(op: $name) -> Op {
                Op::$name(op)
            }
        })*
    };
}

operators! {
    Arithmetic,
    Arrange,
    Cast,
    Concat,
    DiagMask,
    FlashAttn,
    Gated,
    GetRows,
    Im2Col,
    IndexFill,
    KvAttention,
    KvMix,
    KvScores,
    KvStore,
    Make,
    MulMat,
    MulMatGated,
    MulMatId,
    Norm,
    Overlay,
    Pool2d,
    Rank,
    Reduce,
    Reshape,
    RmsNorm,
    Rope,
    SetRows,
    SoftMax,
    SsmConv,
    SsmScan,
    Unary,
    Upscale,
}

impl Op {
    /// Rows of a table by index, as activations of type `output`.
    pub fn get_rows(output: DType) -> Op {
        GetRows { output }.into()
    }

    /// The same bytes under another shape.
    pub fn reshape(sizes: &[usize]) -> Op {
        Reshape { shape: Shape::new(sizes) }.into()
    }

    /// Index of the activation input of `mul_mat` and the fused gated products, which a device may round first; `None`
    /// for all other operators, including `mul_mat_id`.
    pub fn multiplied(&self) -> Option<usize> {
        if matches!(self, Op::MulMat(_)) { Some(1) } else { matches!(self, Op::MulMatGated(_)).then_some(2) }
    }

    /// Whether the output shares the memory of the first input: written in place, or as a view.
    pub fn is_alias(&self) -> bool {
        self.is_view() || matches!(self, Op::KvStore(_))
    }

    /// Whether the output is a view of the first input, which needs no computation.
    pub fn is_view(&self) -> bool {
        matches!(self, Op::Reshape(_)) || matches!(self, Op::Arrange(arrange) if arrange.is_view())
    }

    /// The output type, as a view of the first input if the operator is a view.
    fn seen(&self, output: TensorType, inputs: &[TensorType]) -> Result<TensorType, String> {
        let counted = inputs.iter().all(|input| input.shape.span().is_some());
        expect(counted, || "the number of elements of an input overflows".to_owned())?;
        let Some(first) = inputs.first() else { return Ok(output) };
        if let Op::Arrange(arrange) = self {
            let shape = arrange.seen(&first.shape, output.shape)?;
            return Ok(TensorType { shape, ..output });
        }
        expect(!self.is_alias() || first.shape.is_dense(), || {
            format!("expected a contiguous first input, found {first}; copy it with `cpy` first")
        })?;
        Ok(output)
    }
}

/// The inputs as an array of exactly `N`, or how many there should be.
fn exactly<const N: usize>(inputs: &[TensorType]) -> Result<[TensorType; N], String> {
    inputs.try_into().map_err(|_| format!("takes {N} inputs, got {}", inputs.len()))
}

/// Whether elements are results of arithmetic: f32, or f64 on the `ref` device.
fn is_activation(ty: &TensorType) -> bool {
    matches!(ty.dtype, DType::F32 | DType::F64)
}

fn expect(holds: bool, rule: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(rule()) }
}

fn expect_activation(what: &str, ty: &TensorType) -> Result<(), String> {
    expect(is_activation(ty), || format!("{what} must be f32 or f64, not {}", ty.dtype))
}

/// What matrices are multiplied with: an activation, or f16.
fn expect_multiplied(what: &str, ty: &TensorType) -> Result<(), String> {
    let fits = is_activation(ty) || ty.dtype == DType::F16;
    expect(fits, || format!("{what} must be f32, f64 or f16, not {}", ty.dtype))
}

/// Checks the type of a KV cache: floating point, or `q8_0` if its blocks divide the `len` elements of `whole`.
fn expect_cache(what: &str, ty: &TensorType, (whole, len): (&str, usize)) -> Result<(), String> {
    let known = ty.dtype.is_float() || ty.dtype == DType::Q8_0;
    expect(known, || format!("{what} must be floating point or q8_0, not {}", ty.dtype))?;
    let block_len = ty.dtype.block_len();
    expect(len.is_multiple_of(block_len), || {
        format!(
            "{what} of type {}: expected {whole} with a multiple of {block_len} elements, found {len}; use f16 or f32",
            ty.dtype
        )
    })
}

fn expect_indices(what: &str, ty: &TensorType, len: usize) -> Result<(), String> {
    let fits = ty.dtype == DType::I32 && ty.shape == Shape::new(&[len]);
    expect(fits, || format!("{what} must be i32[{len}], not {ty}"))
}
