//! A selective state space (Mamba): a short convolution and a recurrence along the tokens of a sequence.
//!
//! ```text
//! channels   x ─┬─ ssm_x ─ conv1d (+ b) ─ silu (u) ─┬─ dt, B, C ─ scan ─(+ D u)─ swiglu ─ ssm_out
//!               └─ ssm_z ────────────────────────────────────────────────────────▲
//! heads      x ─┬─ ssm_x ─ conv1d (+ b) ─ silu (u, B, C) ─ scan ─(+ D u)─ swiglu ─ norm ─ ssm_out
//!               ├─ ssm_dt ─────────────────────────────────▲              ▲
//!               └─ ssm_z ─────────────────────────────────────────────────┘
//! ```
//!
//! A sequence needs two states: the last inputs of the convolution, and the state of the scan. Both are one row for
//! each slot. Slot 0 is never written: a sequence that starts reads its zeros. Sources: Gu and Dao 2023, section 3; Dao
//! and Gu 2024, section 7.

use crate::build::{Builder, Built};
use crate::diagnostics::Diagnostics;
use crate::limit::SIZE_MAX;
use crate::metadata::{KeyWriter, Keys};
use crate::part::norm::Norm;
use crate::tensor::{TensorKind, TensorList};
use trueup_graph::op::{Arithmetic, Arrange, Cast, Concat, Gated, KvStore, Op, SsmConv, SsmScan, Unary};
use trueup_graph::{Input, Shape, TensorType, ValueId};

/// The state space of one layer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct StateSpace {
    /// Number of inputs, and of outputs, of the scan per token.
    pub inner_size: usize,
    /// State elements per channel.
    pub state_size: usize,
    /// Taps of the convolution.
    pub taps: usize,
    /// Whether the convolution has a bias.
    pub has_bias: bool,
    pub rates: Rates,
}

/// Granularity of the decay rates (Mamba: per channel and state element; Mamba-2: per head), and the source of dt, B
/// and C.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Rates {
    /// One rate for each element of the state. dt, B and C are projected from the convolution's result, dt through
    /// `rank` elements.
    Channels { rank: usize },
    /// One rate for each of `heads` heads. dt, B and C are projected from the layer's input; B and C then pass through
    /// the convolution. Each of `groups` groups of heads shares B and C, and each group of the result is normalized.
    Heads { heads: usize, groups: usize, norm: Norm },
}

/// Maximum number of elements of the scan's state, and of that of the convolution.
const STATE_MAX: usize = 1 << 24;
/// Maximum number of convolution taps.
const TAPS_MAX: usize = 64;

/// Names the key instead of every tensor if the tensors of the first layer have another inner size.
fn check_inner_size(keys: &mut Keys, inner_size: usize, rates: Rates) {
    let size = |stem: &str, dimension| keys.dimension(&format!("blk.0.{stem}.weight"), dimension);
    let projected = match rates {
        Rates::Channels { .. } => size("ssm_x", 0),
        // The norm of several groups has a row for each group.
        Rates::Heads { .. } => {
            size("ssm_norm", 0).and_then(|columns| columns.checked_mul(size("ssm_norm", 1).unwrap_or(1)))
        }
    };
    let sizes = [size("ssm_out", 0), projected];
    if keys.is_sound() {
        let meaning = "the inner size of the tensors of layer 0";
        keys.expect_of_tensors("ssm.inner_size", inner_size, meaning, &sizes);
    }
}

impl StateSpace {
    /// Reads the `ssm.*` keys. The architecture passes the kind of `rates`; the number of heads or the rank is read
    /// from the file.
    pub fn from_keys(keys: &mut Keys, rates: Rates) -> StateSpace {
        let count = keys.size("ssm.time_step_rank");
        let inner_size = keys.size("ssm.inner_size");
        check_inner_size(keys, inner_size, rates);
        StateSpace {
            inner_size,
            state_size: keys.size("ssm.state_size"),
            taps: keys.size("ssm.conv_kernel"),
            has_bias: keys.has_tensor("blk.{l}.ssm_conv1d.bias"),
            rates: match rates {
                Rates::Channels { .. } => Rates::Channels { rank: count },
                Rates::Heads { norm, .. } => Rates::Heads { heads: count, groups: keys.size("ssm.group_count"), norm },
            },
        }
    }

    /// Writes its keys.
    pub fn write_keys(&self, writer: &mut KeyWriter) {
        writer.count("ssm.conv_kernel", self.taps);
        writer.count("ssm.inner_size", self.inner_size);
        writer.count("ssm.state_size", self.state_size);
        match self.rates {
            Rates::Channels { rank } => writer.count("ssm.time_step_rank", rank),
            Rates::Heads { heads, groups, .. } => {
                writer.count("ssm.time_step_rank", heads);
                writer.count("ssm.group_count", groups);
            }
        }
    }

    /// Channels of the convolution.
    fn channels(&self) -> usize {
        match self.rates {
            Rates::Channels { .. } => self.inner_size,
            Rates::Heads { .. } => self.inner_size.saturating_add(self.group_elements().saturating_mul(2)),
        }
    }

    /// Groups of B and C.
    fn groups(&self) -> usize {
        match self.rates {
            Rates::Channels { .. } => 1,
            Rates::Heads { groups, .. } => groups,
        }
    }

    /// Elements of B, and of C, for one token.
    fn group_elements(&self) -> usize {
        self.state_size.saturating_mul(self.groups())
    }

    /// Elements of the last inputs of the convolution.
    fn tail_elements(&self) -> usize {
        self.taps.saturating_sub(1).saturating_mul(self.channels())
    }

    /// Elements of the scan's state.
    fn state_elements(&self) -> usize {
        self.state_size.saturating_mul(self.inner_size)
    }

    /// Elements of both states of a sequence.
    pub fn kept_elements(&self) -> usize {
        self.tail_elements().saturating_add(self.state_elements())
    }

    /// The longest row of its activations and states.
    pub fn widest_row(&self) -> usize {
        self.tail_elements().max(self.state_elements()).max(self.channels())
    }

    pub fn tensors(&self, hidden_size: usize, list: &mut TensorList) {
        let StateSpace { inner_size, state_size, taps, has_bias, rates } = *self;
        match rates {
            Rates::Channels { .. } => {
                list.fused_matrix("ssm_in", hidden_size, &[("ssm_in_x", inner_size), ("ssm_in_z", inner_size)]);
            }
            Rates::Heads { heads, .. } => {
                let parts = [("ssm_in_z", inner_size), ("ssm_in_x", self.channels()), ("ssm_in_dt", heads)];
                list.fused_matrix("ssm_in", hidden_size, &parts);
            }
        }
        list.add("ssm_conv1d", "weight", &[taps, self.channels()], TensorKind::Matrix);
        if has_bias {
            list.bias("ssm_conv1d", self.channels());
        }
        match rates {
            Rates::Channels { rank } => {
                let parts = [("ssm_x_dt", rank), ("ssm_x_b", state_size), ("ssm_x_c", state_size)];
                list.fused_matrix("ssm_x", inner_size, &parts);
                list.matrix("ssm_dt", rank, inner_size);
                list.bias("ssm_dt", inner_size);
                list.add("ssm_a", "", &[state_size, inner_size], TensorKind::Decay);
                list.add("ssm_d", "", &[inner_size], TensorKind::NormWeight);
            }
            Rates::Heads { heads, groups, norm } => {
                list.bias("ssm_dt", heads);
                list.add("ssm_a", "", &[1, heads], TensorKind::Decay);
                list.add("ssm_d", "", &[1, heads], TensorKind::NormWeight);
                match groups {
                    1 => norm.tensors("ssm_norm", inner_size, list),
                    _ => norm.tensors_of("ssm_norm", &[inner_size.checked_div(groups).unwrap_or(1), groups], list),
                }
            }
        }
        list.matrix("ssm_out", inner_size, hidden_size);
    }

    pub fn check(&self, diagnostics: &mut Diagnostics) {
        if let Rates::Heads { heads, groups, norm } = self.rates {
            norm.check(diagnostics);
            if heads == 0 || !self.inner_size.is_multiple_of(heads) {
                let inner = self.inner_size;
                diagnostics
                    .add(format!("number of heads: expected a divisor of the inner size {inner}, found {heads}"));
            }
            if groups == 0 || !heads.is_multiple_of(groups) {
                diagnostics.add(format!("number of groups: expected a divisor of the {heads} heads, found {groups}"));
            }
        }
        if !(2..=TAPS_MAX).contains(&self.taps) {
            diagnostics.add(format!("convolution taps: expected 2 to {TAPS_MAX}, found {}", self.taps));
        }
        if self.state_elements() > STATE_MAX || self.widest_row() > STATE_MAX || self.inner_size > SIZE_MAX {
            let (scan, tail, inner) = (self.state_elements(), self.tail_elements(), self.inner_size);
            diagnostics.add(format!(
                "state space: expected at most {STATE_MAX} elements in each state and an inner size of at most {SIZE_MAX}, \
                 found {scan} (scan), {tail} (convolution) and inner size {inner}"
            ));
        }
    }

    /// Applies the state space to `x` `[hidden size, tokens]`; the result has the same shape. The tokens of each
    /// sequence are adjacent, and all sequences of the batch have the same number of tokens.
    pub fn build(&self, builder: &mut Builder, x: ValueId) -> Built {
        let streams = builder.batch().streams;
        let each = builder.batch().tokens.checked_div(streams).unwrap_or(0);
        let input = builder.product("ssm_x", "ssm_in_x", x)?;
        let gate = builder.product("ssm_z", "ssm_in_z", x)?;
        let step = match self.rates {
            Rates::Channels { .. } => None,
            Rates::Heads { .. } => {
                let step = builder.product("ssm_dt", "ssm_in_dt", x)?;
                Some(builder.biased("ssm_dt", "ssm_dt", step, true)?)
            }
        };
        let window = self.window(builder, input, [each, streams])?;
        let weight = builder.weight("ssm_conv1d", "weight");
        let conv = builder.node("ssm_conv", SsmConv, &[window, weight])?;
        let flat = Op::reshape(&[self.channels(), builder.batch().tokens]);
        let conv = builder.node("ssm_conv_rows", flat, &[conv])?;
        let conv = builder.biased("ssm_conv_rows", "ssm_conv1d", conv, self.has_bias)?;
        let mixed = builder.node("ssm_u", Unary::Silu, &[conv])?;
        let y = self.scanned(builder, mixed, step, [each, streams])?;
        let gated = builder.node("ssm_swiglu", Gated::Swiglu, &[gate, y])?;
        let gated = match &self.rates {
            Rates::Channels { .. } => gated,
            Rates::Heads { norm, groups: 1, .. } => norm.build(builder, "ssm_normed", gated, "ssm_norm")?,
            Rates::Heads { norm, groups, .. } => {
                let (size, tokens) = (self.inner_size.checked_div(*groups).unwrap_or(1), builder.batch().tokens);
                let split = builder.node("ssm_swiglu_groups", Op::reshape(&[size, *groups, tokens]), &[gated])?;
                let normed = norm.build_each(builder, "ssm_normed", split, "ssm_norm")?;
                builder.node("ssm_normed_rows", Op::reshape(&[self.inner_size, tokens]), &[normed])?
            }
        };
        builder.product("ssm_out", "ssm_out", gated)
    }

    /// The scan of the convolution's result `mixed`, plus its skip, `[inner size, tokens]`. `step` are the time steps
    /// if they are not projected from `mixed`.
    fn scanned(&self, builder: &mut Builder, mixed: ValueId, step: Option<ValueId>, sizes: [usize; 2]) -> Built {
        let StateSpace { inner_size: inner, rates, .. } = *self;
        let tokens = builder.batch().tokens;
        let skip = builder.weight("ssm_d", "");
        match (rates, step) {
            (Rates::Heads { heads, .. }, Some(step)) => {
                let part = |builder: &mut Builder, name: &str, offset: usize, width: usize| {
                    let row = self.channels();
                    let outer = row.saturating_mul(tokens);
                    let shape = Shape::new(&[width, tokens]);
                    let view = Arrange::View { offset, strides: [1, row, outer, outer], shape };
                    let view = builder.node(name, view, &[mixed])?;
                    builder.node(&format!("{name}_rows"), Cast { to: builder.batch().activation }, &[view])
                };
                let input = part(builder, "ssm_u_part", 0, inner)?;
                let width = self.group_elements();
                let b = part(builder, "ssm_b", inner, width)?;
                let c = part(builder, "ssm_c", inner.saturating_add(width), width)?;
                let size = inner.checked_div(heads).unwrap_or(1);
                let y = self.scan(builder, [input, step, b, c], [size, heads], sizes)?;
                let split = Op::reshape(&[size, heads, tokens]);
                let input = builder.node("ssm_u_heads", split, &[input])?;
                let skipped = builder.node("ssm_du", Arithmetic::Mul, &[input, skip])?;
                let skipped = builder.node("ssm_du_rows", Op::reshape(&[inner, tokens]), &[skipped])?;
                builder.node("ssm_y", Arithmetic::Add, &[y, skipped])
            }
            _ => {
                let step = builder.product("ssm_dt_low", "ssm_x_dt", mixed)?;
                let step = builder.project("ssm_dt", "ssm_dt", step, true)?;
                let b = builder.product("ssm_b", "ssm_x_b", mixed)?;
                let c = builder.product("ssm_c", "ssm_x_c", mixed)?;
                let y = self.scan(builder, [mixed, step, b, c], [1, inner], sizes)?;
                let skipped = builder.node("ssm_du", Arithmetic::Mul, &[mixed, skip])?;
                builder.node("ssm_y", Arithmetic::Add, &[y, skipped])
            }
        }
    }

    /// The inputs of the convolution, `[taps - 1 + tokens, channels, sequences]`, whose last become the state.
    fn window(&self, builder: &mut Builder, input: ValueId, [each, streams]: [usize; 2]) -> Built {
        let (kept, channels, elements) = (self.taps.saturating_sub(1), self.channels(), self.tail_elements());
        let activation = builder.batch().activation;
        let (state, rows) = slots(builder, "conv", elements)?;
        let from = builder.input(Input::StateSources);
        let tail = builder.node("conv_state", Op::get_rows(activation), &[rows, from])?;
        let tail = builder.node("conv_tail", Op::reshape(&[kept, channels, streams]), &[tail])?;
        let split = builder.node("ssm_x_split", Op::reshape(&[channels, each, streams]), &[input])?;
        let turned = builder.node("ssm_x_turned", Arrange::Transpose, &[split])?;
        let turned = builder.node("ssm_x_time", Cast { to: activation }, &[turned])?;
        let window = builder.node("conv_window", Concat { dimension: 0 }, &[tail, turned])?;
        let length = kept.saturating_add(each);
        let strides = [1, length, length.saturating_mul(channels), length.saturating_mul(channels)];
        let last = Arrange::View { offset: each, strides, shape: Shape::new(&[kept, channels, streams]) };
        let last = builder.node("conv_last", last, &[window])?;
        let last = builder.node("conv_last_dense", Cast { to: activation }, &[last])?;
        let last = builder.node("conv_last_rows", Op::reshape(&[elements, streams]), &[last])?;
        store(builder, "conv", state, last)?;
        Ok(window)
    }

    /// The recurrence over `inputs`: the input `[inner size, tokens]`, time steps, B and C, for `heads` heads of `size`
    /// channels. The last state is kept.
    fn scan(
        &self,
        builder: &mut Builder,
        inputs: [ValueId; 4],
        [size, heads]: [usize; 2],
        [each, streams]: [usize; 2],
    ) -> Built {
        let [input, step, b, c] = inputs;
        let (tokens, activation) = (builder.batch().tokens, builder.batch().activation);
        let step = builder.node("ssm_dt_split", Op::reshape(&[heads, each, streams]), &[step])?;
        let vectors = Op::reshape(&[self.state_size, self.groups(), each, streams]);
        let b = builder.node("ssm_b_split", vectors.clone(), &[b])?;
        let c = builder.node("ssm_c_split", vectors, &[c])?;
        let input = builder.node("ssm_u_split", Op::reshape(&[size, heads, each, streams]), &[input])?;
        let elements = self.state_elements();
        let (state, rows) = slots(builder, "ssm", elements)?;
        let slot_count = builder.batch().slots();
        let held = Op::reshape(&[self.state_size, size, heads, slot_count]);
        let held = builder.node("ssm_state", held, &[rows])?;
        let rate = builder.weight("ssm_a", "");
        let from = builder.input(Input::StateSources);
        let scan = builder.node("ssm_scan", SsmScan, &[held, input, step, rate, b, c, from])?;
        let part = |offset: usize, width: usize, rows: usize| Arrange::View {
            offset,
            strides: [1, width, width.saturating_mul(rows), width.saturating_mul(rows)],
            shape: Shape::new(&[width, rows]),
        };
        let inner = self.inner_size;
        let last = builder.node("ssm_last", part(inner.saturating_mul(tokens), elements, streams), &[scan])?;
        let last = builder.node("ssm_last_rows", Cast { to: activation }, &[last])?;
        store(builder, "ssm", state, last)?;
        let y = builder.node("ssm_scanned", part(0, inner, tokens), &[scan])?;
        builder.node("ssm_scanned_rows", Cast { to: activation }, &[y])
    }
}

/// A state with a row of `elements` for each slot, and the same as a matrix.
fn slots(builder: &mut Builder, which: &str, elements: usize) -> Result<(ValueId, ValueId), trueup_graph::ShapeError> {
    let (slots, activation) = (builder.batch().slots(), builder.batch().activation);
    let state = builder.state(&format!("state_{which}"), TensorType::new(activation, &[elements, 1, slots]));
    let rows = builder.node(&format!("state_{which}_rows"), Op::reshape(&[elements, slots]), &[state])?;
    Ok((state, rows))
}

/// Puts rows into the slots of the batch's sequences.
fn store(builder: &mut Builder, which: &str, state: ValueId, rows: ValueId) -> Built {
    let to = builder.input(Input::StateTargets);
    builder.node(&format!("store_{which}"), KvStore, &[state, rows, to])
}
