//! Cross attention: the decoder's tokens attend to the result of the encoder.
//!
//! ```text
//! encoder    result ─ K V ─ states                                    once for a text
//! decoder    x ─ norm ─ Q ─ kq over the states ─ soft_max ─ kqv_out ─ cross_out
//! ```

use crate::build::{Builder, Built};
use crate::diagnostics::Diagnostics;
use crate::number::nearest_f32;
use crate::part::attention::{Attention, store};
use crate::part::norm::Norm;
use crate::tensor::TensorList;
use trueup_graph::op::{KvMix, KvScores, Op, SoftMax};
use trueup_graph::{Input, ShapeError, StateKind, ValueId};

/// The stem of the norm's tensor.
const NORM: &str = "cross_attn_norm";

/// Cross attention with the norm before it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct CrossAttention {
    /// Attention heads, of queries, keys and values.
    pub heads: usize,
    /// Elements of a head.
    pub head_size: usize,
    /// Multiplies the scores.
    pub scale: f64,
    pub norm: Norm,
}

impl Attention {
    /// Cross attention with the heads of this attention.
    pub fn cross(&self, norm: Norm) -> CrossAttention {
        CrossAttention { heads: self.heads, head_size: self.key_size, scale: self.scale, norm }
    }
}

impl CrossAttention {
    /// Elements of all heads.
    fn elements(&self) -> usize {
        self.heads.saturating_mul(self.head_size)
    }

    pub fn tensors(&self, hidden_size: usize, list: &mut TensorList) {
        self.norm.tensors(NORM, hidden_size, list);
        for stem in ["cross_attn_q", "cross_attn_k", "cross_attn_v"] {
            list.matrix(stem, hidden_size, self.elements());
        }
        list.matrix("cross_attn_o", self.elements(), hidden_size);
    }

    pub fn check(&self, diagnostics: &mut Diagnostics) {
        self.norm.check(diagnostics);
    }

    /// Keys and values of the encoder's `result` `[hidden size, tokens]`, which the decoder reads from states.
    pub fn store(&self, builder: &mut Builder, result: ValueId) -> Result<(), ShapeError> {
        let key = builder.product("cross_Kcur", "cross_attn_k", result)?;
        let value = builder.product("cross_Vcur", "cross_attn_v", result)?;
        for (which, x) in [("k", key), ("v", value)] {
            let state = self.state(builder, which);
            store(builder, &format!("cross_cache_{which}"), StateKind::Rows, [state, x])?;
        }
        Ok(())
    }

    /// Applies cross attention over the encoder's result to `x` `[hidden size, tokens]`.
    pub fn build(&self, builder: &mut Builder, x: ValueId) -> Built {
        let x = self.norm.build(builder, "attn_norm_cross", x, NORM)?;
        let query = builder.product("cross_Qcur", "cross_attn_q", x)?;
        let heads = Op::reshape(&[self.head_size, self.heads, builder.batch().tokens]);
        let query = builder.node("cross_Qcur_heads", heads, &[query])?;
        let [keys, values] = ["k", "v"].map(|which| self.state(builder, which));
        let sequences = builder.input(Input::Sequences);
        let mask = builder.input(Input::MaskSource);
        let kq = KvScores { capacity: builder.batch().source() };
        let scores = builder.node("cross_kq", kq, &[query, keys, sequences])?;
        let soft_max = SoftMax { scale: nearest_f32(self.scale), max_bias: 0.0 };
        let weights = builder.node("cross_kq_soft_max", soft_max, &[scores, mask])?;
        let mix = KvMix { kv_heads: self.heads };
        let mixed = builder.node("cross_kqv_out", mix, &[weights, values, sequences])?;
        builder.project("cross_out", "cross_attn_o", mixed, false)
    }

    /// The state with the keys (`k`) or values (`v`).
    fn state(&self, builder: &mut Builder, which: &str) -> ValueId {
        builder.cache(&format!("cross_{which}"), StateKind::Rows, self.elements())
    }
}
