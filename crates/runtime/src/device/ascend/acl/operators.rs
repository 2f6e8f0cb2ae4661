//! The operators that this device composes with: for each its arguments, in the order of its first call.
//!
//! `out` is written. Where the libraries have no such operator, calling it says so.

use super::array::{Array, Pass, Scalar, Type};
use super::queue::{Prepared, Queue};
use std::ffi::{CStr, c_int, c_void};

macro_rules! operators {
    ($($(#[$doc:meta])* $name:ident = $First:literal, $Second:literal ($($argument:ident: $Type:ty),* $(,)?);)*) => {
        impl Queue {
            $(
                $(#[$doc])*
                #[allow(clippy::too_many_arguments, reason = "the vendor's operators take as many")]
                pub fn $name(&self, $($argument: $Type),*) -> Result<(), String> {
                    type First = unsafe extern "C" fn($(<$Type as Pass>::C,)* *mut u64, *mut *mut c_void) -> c_int;
                    let (library, mut held) = self.enter()?;
                    // SAFETY: a function of that name has this form.
                    let first = unsafe { library.function::<First>($First) }?;
                    let mut prepared = Prepared::none();
                    $(let $argument = $argument.pass(&mut held)?;)*
                    // SAFETY: handles that live until the second call is over, and places for two results.
                    let code = unsafe { first($($argument,)* &raw mut prepared.workspace_bytes, &raw mut prepared.executor) };
                    library.expect($First, code)?;
                    self.ask($Second, prepared)
                }
            )*
        }
    };
}

operators! {
    /// `out = a + alpha b`.
    add = c"aclnnAddGetWorkspaceSize", c"aclnnAdd" (a: &Array, b: &Array, alpha: Scalar, out: &Array);
    /// `out = a - alpha b`.
    sub = c"aclnnSubGetWorkspaceSize", c"aclnnSub" (a: &Array, b: &Array, alpha: Scalar, out: &Array);
    /// `out = a b`.
    mul = c"aclnnMulGetWorkspaceSize", c"aclnnMul" (a: &Array, b: &Array, out: &Array);
    /// `out = a / b`.
    div = c"aclnnDivGetWorkspaceSize", c"aclnnDiv" (a: &Array, b: &Array, out: &Array);
    /// `out = a / number`.
    divs = c"aclnnDivsGetWorkspaceSize", c"aclnnDivs" (a: &Array, number: Scalar, out: &Array);
    /// `out = a^b`.
    pow = c"aclnnPowTensorTensorGetWorkspaceSize", c"aclnnPowTensorTensor" (a: &Array, b: &Array, out: &Array);
    /// `out = a^exponent`.
    pow_scalar = c"aclnnPowTensorScalarGetWorkspaceSize", c"aclnnPowTensorScalar" (a: &Array, exponent: Scalar, out: &Array);
    /// `a += alpha b`.
    add_to = c"aclnnInplaceAddGetWorkspaceSize", c"aclnnInplaceAdd" (a: &Array, b: &Array, alpha: Scalar);
    /// `a *= b`.
    mul_by = c"aclnnInplaceMulGetWorkspaceSize", c"aclnnInplaceMul" (a: &Array, b: &Array);
    /// `out = factor a`.
    muls = c"aclnnMulsGetWorkspaceSize", c"aclnnMuls" (a: &Array, factor: Scalar, out: &Array);
    /// `out = a + alpha number`.
    adds = c"aclnnAddsGetWorkspaceSize", c"aclnnAdds" (a: &Array, number: Scalar, alpha: Scalar, out: &Array);
    /// The square root.
    sqrt = c"aclnnSqrtGetWorkspaceSize", c"aclnnSqrt" (a: &Array, out: &Array);
    /// `1 / sqrt a`.
    rsqrt = c"aclnnRsqrtGetWorkspaceSize", c"aclnnRsqrt" (a: &Array, out: &Array);
    /// `e^a`.
    exp = c"aclnnExpGetWorkspaceSize", c"aclnnExp" (a: &Array, out: &Array);
    /// The natural logarithm.
    log = c"aclnnLogGetWorkspaceSize", c"aclnnLog" (a: &Array, out: &Array);
    /// The sine.
    sin = c"aclnnSinGetWorkspaceSize", c"aclnnSin" (a: &Array, out: &Array);
    /// The cosine.
    cos = c"aclnnCosGetWorkspaceSize", c"aclnnCos" (a: &Array, out: &Array);
    /// `-a`.
    neg = c"aclnnNegGetWorkspaceSize", c"aclnnNeg" (a: &Array, out: &Array);
    /// `|a|`.
    abs = c"aclnnAbsGetWorkspaceSize", c"aclnnAbs" (a: &Array, out: &Array);
    /// `min(max(a, min), max)`.
    clamp = c"aclnnClampGetWorkspaceSize", c"aclnnClamp" (a: &Array, min: Scalar, max: Scalar, out: &Array);
    /// `max(a, min)`.
    clamp_min = c"aclnnClampMinGetWorkspaceSize", c"aclnnClampMin" (a: &Array, min: Scalar, out: &Array);
    /// Whether `a > number`, as the type of `out`.
    greater = c"aclnnGtScalarGetWorkspaceSize", c"aclnnGtScalar" (a: &Array, number: Scalar, out: &Array);
    /// `a = value` where the mask is set.
    fill_where = c"aclnnInplaceMaskedFillScalarGetWorkspaceSize", c"aclnnInplaceMaskedFillScalar" (a: &Array, mask: &Array, value: Scalar);
    /// `a` where the condition is set, else `b`.
    choose = c"aclnnSWhereGetWorkspaceSize", c"aclnnSWhere" (condition: &Array, a: &Array, b: &Array, out: &Array);
    /// `start`, `start + step` and so on, up to `end`, without it.
    arange = c"aclnnArangeGetWorkspaceSize", c"aclnnArange" (start: Scalar, end: Scalar, step: Scalar, out: &Array);
    /// `a = value` everywhere.
    fill = c"aclnnInplaceFillScalarGetWorkspaceSize", c"aclnnInplaceFillScalar" (a: &Array, value: Scalar);
    /// `a = 0` everywhere.
    zero = c"aclnnInplaceZeroGetWorkspaceSize", c"aclnnInplaceZero" (a: &Array);
    /// `a = 0` below a diagonal.
    keep_upper = c"aclnnInplaceTriuGetWorkspaceSize", c"aclnnInplaceTriu" (a: &Array, diagonal: i64);
    /// `a = 0` above a diagonal.
    keep_lower = c"aclnnInplaceTrilGetWorkspaceSize", c"aclnnInplaceTril" (a: &Array, diagonal: i64);
    /// `max(a, 0)`.
    relu = c"aclnnReluGetWorkspaceSize", c"aclnnRelu" (a: &Array, out: &Array);
    /// `a / (1 + e^-a)`.
    silu = c"aclnnSiluGetWorkspaceSize", c"aclnnSilu" (a: &Array, out: &Array);
    /// By the error function for `approximate` 0, by tanh for 1.
    gelu = c"aclnnGeluV2GetWorkspaceSize", c"aclnnGeluV2" (a: &Array, approximate: i64, out: &Array);
    /// `1 / (1 + e^-a)`.
    sigmoid = c"aclnnSigmoidGetWorkspaceSize", c"aclnnSigmoid" (a: &Array, out: &Array);
    /// The hyperbolic tangent.
    tanh = c"aclnnTanhGetWorkspaceSize", c"aclnnTanh" (a: &Array, out: &Array);
    /// `min(max(a + 3, 0), 6) / 6`.
    hardsigmoid = c"aclnnHardsigmoidGetWorkspaceSize", c"aclnnHardsigmoid" (a: &Array, out: &Array);
    /// `a min(max(a + 3, 0), 6) / 6`.
    hardswish = c"aclnnHardswishGetWorkspaceSize", c"aclnnHardswish" (a: &Array, out: &Array);
    /// `ln(1 + e^(beta a)) / beta`, and `a` beyond the threshold.
    softplus = c"aclnnSoftplusGetWorkspaceSize", c"aclnnSoftplus" (a: &Array, beta: Scalar, threshold: Scalar, out: &Array);
    /// `a` where positive, else `slope a`.
    leaky_relu = c"aclnnLeakyReluGetWorkspaceSize", c"aclnnLeakyRelu" (a: &Array, slope: Scalar, out: &Array);
    /// `scale a` where positive, else `scale alpha (e^(input_scale a) - 1)`.
    elu = c"aclnnEluGetWorkspaceSize", c"aclnnElu" (a: &Array, alpha: Scalar, scale: Scalar, input_scale: Scalar, out: &Array);
    /// `out = a / rms(a) gamma`, over the dimensions of gamma.
    rms_norm = c"aclnnRmsNormGetWorkspaceSize", c"aclnnRmsNorm" (a: &Array, gamma: &Array, epsilon: f64, out: &Array, rstd: &Array);
    /// Mean 0 and variance 1 over the last dimensions.
    layer_norm = c"aclnnLayerNormGetWorkspaceSize", c"aclnnLayerNorm"
        (a: &Array, normalized: &[i64], weight: Option<&Array>, bias: Option<&Array>, epsilon: f64, out: &Array, mean: Option<&Array>, rstd: Option<&Array>);
    /// The p-norm of some dimensions.
    norm = c"aclnnNormGetWorkspaceSize", c"aclnnNorm" (a: &Array, p: Scalar, dims: &[i64], keep: bool, out: &Array);
    /// Over one dimension.
    softmax = c"aclnnSoftmaxGetWorkspaceSize", c"aclnnSoftmax" (a: &Array, dim: i64, out: &Array);
    /// The sum of some dimensions.
    sum = c"aclnnReduceSumGetWorkspaceSize", c"aclnnReduceSum" (a: &Array, dims: &[i64], keep: bool, ty: Type, out: &Array);
    /// The mean of some dimensions.
    mean = c"aclnnMeanGetWorkspaceSize", c"aclnnMean" (a: &Array, dims: &[i64], keep: bool, ty: Type, out: &Array);
    /// The largest of some dimensions.
    largest = c"aclnnAmaxGetWorkspaceSize", c"aclnnAmax" (a: &Array, dims: &[i64], keep: bool, out: &Array);
    /// Sums up to each element.
    cumsum = c"aclnnCumsumGetWorkspaceSize", c"aclnnCumsum" (a: &Array, dim: i64, ty: Type, out: &Array);
    /// Where the largest lies.
    argmax = c"aclnnArgMaxGetWorkspaceSize", c"aclnnArgMax" (a: &Array, dim: i64, keep: bool, out: &Array);
    /// The order of elements.
    argsort = c"aclnnArgsortGetWorkspaceSize", c"aclnnArgsort" (a: &Array, dim: i64, descending: bool, out: &Array);
    /// `a = b`, repeated and rounded to the type of `a`; both may have gaps.
    copy_to = c"aclnnInplaceCopyGetWorkspaceSize", c"aclnnInplaceCopy" (a: &Array, b: &Array);
    /// Elements in another type.
    cast = c"aclnnCastGetWorkspaceSize", c"aclnnCast" (a: &Array, ty: Type, out: &Array);
    /// Slices of one dimension by their numbers.
    index_select = c"aclnnIndexSelectGetWorkspaceSize", c"aclnnIndexSelect" (a: &Array, dim: i64, index: &Array, out: &Array);
    /// Slices of one dimension written at numbers.
    index_copy = c"aclnnInplaceIndexCopyGetWorkspaceSize", c"aclnnInplaceIndexCopy" (a: &Array, dim: i64, index: &Array, source: &Array);
    /// A product of matrices.
    mm = c"aclnnMmGetWorkspaceSize", c"aclnnMm" (a: &Array, b: &Array, out: &Array, cube_math: i8);
    /// Products of stacks of matrices, repeated.
    matmul = c"aclnnMatmulGetWorkspaceSize", c"aclnnMatmul" (a: &Array, b: &Array, out: &Array, cube_math: i8);
    /// `out = x (weight + offset) scale + bias`, with scales of groups.
    weight_quantized_matmul = c"aclnnWeightQuantBatchMatmulV2GetWorkspaceSize", c"aclnnWeightQuantBatchMatmulV2"
        (x: &Array, weight: &Array, scale: &Array, offset: Option<&Array>, quant_scale: Option<&Array>, quant_offset: Option<&Array>, bias: Option<&Array>, group: i32, out: &Array);
    /// `out = (x + offset) scale`, of integers.
    anti_quantize = c"aclnnAscendAntiQuantGetWorkspaceSize", c"aclnnAscendAntiQuant"
        (x: &Array, scale: &Array, offset: Option<&Array>, ty: i64, sqrt: bool, out: &Array);
    /// `out = x cos + rotate(x) sin`.
    rotate = c"aclnnRotaryPositionEmbeddingGetWorkspaceSize", c"aclnnRotaryPositionEmbedding"
        (x: &Array, cos: &Array, sin: &Array, mode: i64, out: &Array);
    /// `out = softmax(scale q k + shift) v` by heads; see [`Queue::attention`].
    fused_attention = c"aclnnFusedInferAttentionScoreV2GetWorkspaceSize", c"aclnnFusedInferAttentionScoreV2"
        (q: &Array, k: &[&Array], v: &[&Array], shift: Option<&Array>, mask: Option<&Array>, lengths: Option<&[i64]>, kv_lengths: Option<&[i64]>,
         dequant_1: Option<&Array>, quant_1: Option<&Array>, dequant_2: Option<&Array>, quant_2: Option<&Array>, quant_offset_2: Option<&Array>,
         antiquant_scale: Option<&Array>, antiquant_offset: Option<&Array>, blocks: Option<&Array>, q_padding: Option<&Array>, kv_padding: Option<&Array>,
         k_scale: Option<&Array>, k_offset: Option<&Array>, v_scale: Option<&Array>, v_offset: Option<&Array>,
         k_prefix: Option<&Array>, v_prefix: Option<&Array>, prefix_lengths: Option<&[i64]>,
         heads: i64, scale: f64, before: i64, after: i64, layout: &CStr, kv_heads: i64, sparse: i64, precision: i64, block: i64, antiquant: i64,
         sums: bool, k_mode: i64, v_mode: i64, out: &Array, sums_out: Option<&Array>);
}

/// Attention of neighbouring tokens of one sequence: `q` and `out` `[1, tokens, heads, D]`, `k` and `v` `[1, positions,
/// kv heads, D]`, all of f16 or bf16 without gaps, `D` a multiple of 16 up to 512.
#[derive(Debug)]
pub struct Attention<'a> {
    /// Queries.
    pub q: &'a Array,
    /// Keys.
    pub k: &'a Array,
    /// Values.
    pub v: &'a Array,
    /// What is added to scaled scores, `[1, heads, tokens, positions]`, of the type of q.
    pub shift: &'a Array,
    /// What scores are multiplied with.
    pub scale: f32,
    /// The result.
    pub out: &'a Array,
}

impl Queue {
    /// The vendor's fused attention, with nothing of what it can do besides: no lengths, no integers, no pages, no
    /// shared prefix.
    #[rustfmt::skip]
    pub fn attention(&self, asked: &Attention) -> Result<(), String> {
        let Attention { q, k, v, shift, scale, out } = asked;
        let (no, none) = (None, None);
        // Everything is seen but what the shift hides.
        let far = i64::from(i32::MAX);
        // High precision; 2 asks for rows that see nothing as well, which is for several rows only.
        let precision = if q.sizes[1] == 1 { 0 } else { 2 };
        let scale = f64::from(*scale);
        self.fused_attention(
            q, &[*k], &[*v], Some(shift), no, none, none,
            no, no, no, no, no, no, no, no, no, no, no, no, no, no, no, no, none,
            q.sizes[2], scale, far, far, c"BSND", k.sizes[2], 0, precision, 0, 0, false, 0, 0, out, no,
        )
    }
}
