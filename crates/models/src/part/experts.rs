//! A mixture of experts: several feed-forward layers, a few of which are used for each token.
//!
//! ```text
//! x ─┬─ router ─ softmax or sigmoid ─ top-k ─┬─ ids ──────┬───────────────────┐
//!    │                                       └─ weights ──│───────────────────│── (renormalize, scale) ─┐
//!    ├────────── gate, up of the experts of each token ◀──┘                   │                         │
//!    │                └─ f(gate) * up ─ down of the same experts ◀────────────┘─ * weights ◀────────────┘─ sum ─ (+) ─
//!    └─ shared expert (* sigmoid(gate x)) ──────────────────────────────────────────────────────────────────────┘
//! ```

use crate::build::{Builder, Built};
use crate::config::Config;
use crate::decoder::Decoder;
use crate::diagnostics::Diagnostics;
use crate::limit::SIZE_MAX;
use crate::metadata::{KeyWriter, Keys};
use crate::number::{nearest_f32, real};
use crate::part::feed_forward::Activation;
use crate::tensor::{TensorKind, TensorList};
use trueup_graph::ValueId;
use trueup_graph::op::{Arithmetic, Arrange, Cast, Op, Rank, RankRule, Reduce, Reduction, SoftMax, Unary};

/// The experts of one layer.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Experts {
    /// Number of experts.
    pub count: usize,
    /// Number of experts used for each token.
    pub used: usize,
    /// Size of each expert's hidden layer.
    pub size: usize,
    pub activation: Activation,
    pub routing: Routing,
    /// Whether a bias is added to the scores for the choice of experts, but not for their weights.
    pub has_selection_bias: bool,
    /// The expert used for every token.
    pub shared: Option<SharedExpert>,
    /// Expert groups, of which some are chosen first.
    pub groups: Option<ExpertGroups>,
}

/// Groups of consecutive experts. For each token, some groups are chosen first, then experts from them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ExpertGroups {
    /// Number of groups.
    pub count: usize,
    /// Number of groups chosen for each token.
    pub used: usize,
    /// Number of highest expert scores whose sum is the score of a group.
    pub best: usize,
}

/// How expert weights are computed from the scores of the router.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Routing {
    pub gating: Gating,
    /// Whether the weights of the chosen experts are divided by their sum.
    pub is_renormalized: bool,
    /// Multiplier for the weights.
    pub scale: Option<f32>,
}

/// The function applied to the scores of the router.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gating {
    /// Over all experts.
    Softmax,
    /// For each expert separately.
    Sigmoid,
}

/// An expert used for every token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SharedExpert {
    /// Size of its hidden layer.
    pub size: usize,
    /// Whether its output is multiplied by a sigmoid of the input.
    pub is_gated: bool,
}

/// The experts of a model, as configured, and the layers that contain them.
#[derive(Clone, Debug)]
pub(crate) struct SparseLayers {
    pub experts: Experts,
    /// Whether each layer has experts; the others have a dense feed-forward.
    pub layers: Vec<bool>,
}

/// Names of the keys of `config.json`, and the defaults of the class that reads them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpertKeys {
    pub count: (&'static str, usize),
    pub used: (&'static str, usize),
    /// Size of an expert's hidden layer; `None` means the size of the dense feed-forward layer.
    pub size: Option<(&'static str, usize)>,
    /// Whether the checkpoint stores the experts of a layer as one tensor.
    pub is_stacked: bool,
}

/// `expert_gating_func` of each function; 0 and an absent key select the architecture's default.
const GATING_FUNCTIONS: [(u64, Gating); 2] = [(1, Gating::Softmax), (2, Gating::Sigmoid)];

impl Routing {
    /// Softmax over all experts; the weights of the chosen experts are normalized to a sum of 1.
    pub const RENORMALIZED: Routing = Routing { gating: Gating::Softmax, is_renormalized: true, scale: None };
    /// Softmax over all experts, without normalization of the chosen weights.
    pub const PLAIN: Routing = Routing { is_renormalized: false, ..Routing::RENORMALIZED };
}

impl SparseLayers {
    /// Reads the keys of `config.json` for a model with experts in these layers.
    pub fn from_config(
        config: &mut Config,
        decoder: &Decoder,
        keys: &ExpertKeys,
        (routing, layers): (Routing, Vec<bool>),
    ) -> SparseLayers {
        let sparse = layers.iter().filter(|is_sparse| **is_sparse).count();
        let matrices = if keys.is_stacked { 0 } else { sparse };
        let experts = Experts {
            count: count_of(config, keys.count, matrices),
            used: config.count_or(keys.used.0, keys.used.1),
            size: match keys.size {
                Some((key, absent)) => config.size_or(key, absent),
                None => decoder.intermediate.first().copied().unwrap_or(1),
            },
            activation: Activation::Silu,
            routing,
            has_selection_bias: false,
            shared: None,
            groups: None,
        };
        SparseLayers { experts, layers }
    }

    /// Reads the keys of a GGUF file, whose tensors determine which layers have experts; `None` for a dense model.
    /// `routing` is the default for files without routing keys.
    pub fn from_keys(keys: &mut Keys, decoder: &Decoder, routing: Routing) -> Option<SparseLayers> {
        let has = |keys: &Keys, layer: usize, name: &str| keys.has_tensor(&format!("blk.{layer}.{name}.weight"));
        let is_sparse = |layer| has(keys, layer, ROUTER) || has(keys, layer, "ffn_down_exps");
        let mut layers: Vec<bool> = (0..decoder.layers).map(is_sparse).collect();
        if !layers.contains(&true) {
            if keys.count_if_present("expert_count").is_none_or(|count| count == 0) {
                return None;
            }
            // The routers are missing.
            layers.fill(true);
        }
        let size = decoder.intermediate.first().copied().unwrap_or(1);
        let has_shared = keys.has_tensor("blk.{l}.ffn_down_shexp.weight");
        let shared = has_shared.then(|| SharedExpert {
            size: keys.size_or("expert_shared_feed_forward_length", size),
            is_gated: keys.has_tensor("blk.{l}.ffn_gate_inp_shexp.weight"),
        });
        let count = keys.count("expert_count");
        let size = keys.size_or("expert_feed_forward_length", size);
        check_stacks(keys, (count, size), layers.iter().position(|is_sparse| *is_sparse).unwrap_or(0));
        let experts = Experts {
            count,
            used: keys.count("expert_used_count"),
            size,
            activation: Activation::Silu,
            routing: routing.read(keys),
            has_selection_bias: keys.has_tensor("blk.{l}.exp_probs_b.bias"),
            shared,
            groups: None,
        };
        Some(SparseLayers { experts, layers })
    }
}

/// Reads the number of experts. If each expert has separate tensors in `layers` layers, the number of tensors limits
/// it. `absent` is the default of the key.
fn count_of(config: &mut Config, (key, absent): (&str, usize), layers: usize) -> usize {
    let (experts, tensors) = (config.count_or(key, absent), config.tensors());
    if experts.saturating_mul(layers) <= tensors {
        return experts;
    }
    let required = experts.saturating_mul(layers);
    config.problem(match config.value(key) {
        Some(_) => format!("{key}: {experts} experts require at least {required} tensors, found {tensors}"),
        None => format!(
            "{key} is absent and defaults to {experts}, which requires at least {required} tensors; found {tensors}"
        ),
    });
    1
}

/// Reports the key instead of every tensor if all tensors of a layer have another number or size of experts.
fn check_stacks(keys: &mut Keys, (count, size): (usize, usize), layer: usize) {
    if !keys.is_sound() {
        return;
    }
    let sizes = |keys: &Keys, dimensions: &[(&str, usize)]| -> Vec<Option<usize>> {
        let size =
            |(stem, dimension): &(&str, usize)| keys.dimension(&format!("blk.{layer}.{stem}.weight"), *dimension);
        dimensions.iter().map(size).collect()
    };
    let counts = sizes(keys, &[("ffn_gate_exps", 2), ("ffn_up_exps", 2), ("ffn_down_exps", 2), (ROUTER, 1)]);
    let lengths = sizes(keys, &[("ffn_gate_exps", 1), ("ffn_up_exps", 1), ("ffn_down_exps", 0)]);
    let of_layer = |what: &str| format!("the {what} of experts in the tensors of layer {layer}");
    keys.expect_of_tensors("expert_count", count, &of_layer("number"), &counts);
    keys.expect_of_tensors("expert_feed_forward_length", size, &of_layer("size"), &lengths);
}

impl ExpertGroups {
    /// Reads the keys of a GGUF file; `None` without groups.
    pub fn from_keys(keys: &mut Keys, best: usize) -> Option<ExpertGroups> {
        let count = keys.count_if_present("expert_group_count").filter(|count| *count > 1)?;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        Some(ExpertGroups { count, used: keys.count("expert_group_used_count"), best })
    }

    fn check(self, experts: usize, used: usize, diagnostics: &mut Diagnostics) {
        let ExpertGroups { count, used: groups, best } = self;
        let size = experts.checked_div(count).unwrap_or(0);
        if size < best || !experts.is_multiple_of(count) {
            diagnostics.add(format!(
                "number of expert groups: expected a divisor of {experts} (the number of experts) with at least {best} \
                 experts per group, found {count}"
            ));
        } else if groups == 0 || groups > count {
            diagnostics.add(format!("expert groups per token: expected 1 to {count}, found {groups}"));
        } else if groups.saturating_mul(size) < used {
            let found = groups.saturating_mul(size);
            diagnostics.add(format!(
                "expert groups per token: expected at least {used} experts in the selected groups, found {found} \
                 ({groups} x {size})"
            ));
        }
    }

    /// `scores` `[experts, tokens]`, with 0 for the experts of groups that are not chosen.
    fn limited(self, builder: &mut Builder, scores: ValueId, experts: usize) -> Built {
        let (tokens, activation) = (builder.batch().tokens, builder.batch().activation);
        let ExpertGroups { count, used, best } = self;
        let size = experts.checked_div(count).unwrap_or(0);
        let all = count.saturating_mul(tokens);
        let top = |k| Rank { rule: RankRule::TopK { k } };
        let sum = Reduce { rule: Reduction::SumRows };
        let flat = builder.node("ffn_moe_groups", Op::reshape(&[size, all]), &[scores])?;
        let ids = builder.node("ffn_moe_group_best", top(best), &[flat])?;
        let rows = builder.node("ffn_moe_group_rows", Op::reshape(&[1, size, all]), &[scores])?;
        let values = builder.node("ffn_moe_group_values", Op::get_rows(activation), &[rows, ids])?;
        let values = builder.node("ffn_moe_group_pairs", Op::reshape(&[best, all]), &[values])?;
        let sums = builder.node("ffn_moe_group_sums", sum, &[values])?;
        let group_scores = builder.node("ffn_moe_group_scores", Op::reshape(&[count, tokens]), &[sums])?;
        // A group is chosen if its rank is below `used`. Sorting the order again gives the rank, so groups with equal
        // scores have different ranks.
        let order = builder.node("ffn_moe_group_order", Rank { rule: RankRule::Descending }, &[group_scores])?;
        let order = builder.node("ffn_moe_group_order_f32", Cast { to: activation }, &[order])?;
        let rank = builder.node("ffn_moe_group_rank", Rank { rule: RankRule::Ascending }, &[order])?;
        let rank = builder.node("ffn_moe_group_rank_f32", Cast { to: activation }, &[rank])?;
        let above = Unary::Scale { factor: -1.0, bias: nearest_f32(real(used) - 0.5) };
        let above = builder.node("ffn_moe_group_margin", above, &[rank])?;
        let is_used = builder.node("ffn_moe_group_used", Unary::Step, &[above])?;
        let mask = builder.node("ffn_moe_group_mask", Op::reshape(&[1, count, tokens]), &[is_used])?;
        let grouped = builder.node("ffn_moe_grouped", Op::reshape(&[size, count, tokens]), &[scores])?;
        let limited = builder.node("ffn_moe_limited", Arithmetic::Mul, &[grouped, mask])?;
        builder.node("ffn_moe_limited_flat", Op::reshape(&[experts, tokens]), &[limited])
    }
}

/// Epsilon added to the sum of sigmoids by which weights are divided, as in DeepSeek's classes: the sum can be close to
/// 0.
const SUM_EPSILON: f32 = 1e-20;

impl Routing {
    /// Overrides the routing with the keys of a GGUF file.
    fn read(self, keys: &mut Keys) -> Routing {
        let gating = match keys.count_if_present("expert_gating_func") {
            None | Some(0) => self.gating,
            Some(number) => {
                let found = GATING_FUNCTIONS.iter().find(|(known, _)| *known == number);
                if found.is_none() {
                    let expected = "expected 1 (softmax) or 2 (sigmoid)";
                    keys.wrong("expert_gating_func", &format!("{expected}, found {number}"));
                }
                found.map_or(self.gating, |(_, gating)| *gating)
            }
        };
        let scale = keys.number_if_present("expert_weights_scale").map(nearest_f32);
        Routing {
            gating,
            is_renormalized: keys.flag_or("expert_weights_norm", self.is_renormalized),
            // Files can use 0 for no scale.
            scale: scale.filter(|scale| *scale != 0.0 && *scale != 1.0).or(self.scale),
        }
    }
}

/// The stem of the router's matrix.
pub(crate) const ROUTER: &str = "ffn_gate_inp";

impl Experts {
    /// The largest number of elements of an activation for one token.
    pub fn widest_row(&self, hidden_size: usize) -> usize {
        let shared = self.shared.map_or(0, |shared| shared.size);
        self.used.saturating_mul(self.size.max(hidden_size)).max(self.count).max(shared)
    }

    pub fn tensors(&self, hidden_size: usize, list: &mut TensorList) {
        let Experts { count, size, .. } = *self;
        list.matrix(ROUTER, hidden_size, count);
        if self.has_selection_bias {
            list.add("exp_probs_b", "bias", &[count], TensorKind::Bias);
        }
        for (stem, inputs, outputs) in [
            ("ffn_gate_exps", hidden_size, size),
            ("ffn_up_exps", hidden_size, size),
            ("ffn_down_exps", size, hidden_size),
        ] {
            list.add(stem, "weight", &[inputs, outputs, count], TensorKind::Matrix);
        }
        if let Some(SharedExpert { size, is_gated }) = self.shared {
            if is_gated {
                list.matrix("ffn_gate_inp_shexp", hidden_size, 1);
            }
            list.matrix("ffn_gate_shexp", hidden_size, size);
            list.matrix("ffn_up_shexp", hidden_size, size);
            list.matrix("ffn_down_shexp", size, hidden_size);
        }
    }

    pub fn keys(&self, writer: &mut KeyWriter) {
        writer.count("expert_count", self.count);
        writer.count("expert_used_count", self.used);
        writer.count("expert_feed_forward_length", self.size);
        if let Some(shared) = self.shared {
            writer.count("expert_shared_feed_forward_length", shared.size);
        }
        let function = GATING_FUNCTIONS.iter().find(|(_, gating)| *gating == self.routing.gating);
        writer.count("expert_gating_func", function.and_then(|(number, _)| usize::try_from(*number).ok()).unwrap_or(0));
        writer.value("expert_weights_norm", self.routing.is_renormalized);
        if let Some(scale) = self.routing.scale {
            writer.value("expert_weights_scale", scale);
        }
        if let Some(groups) = self.groups {
            writer.count("expert_group_count", groups.count);
            writer.count("expert_group_used_count", groups.used);
        }
    }

    pub fn check(&self, hidden_size: usize, diagnostics: &mut Diagnostics) {
        let Experts { count, used, .. } = *self;
        if used == 0 || used > count {
            diagnostics.add(format!("experts per token: expected 1 to {count}, found {used}"));
        }
        if self.widest_row(hidden_size) > SIZE_MAX {
            let size = self.size.max(hidden_size);
            diagnostics.add(format!(
                "experts per token: expected at most {SIZE_MAX} elements, found {used} experts of {size}"
            ));
        }
        if let Some(groups) = self.groups {
            groups.check(count, used, diagnostics);
        }
        if let Some(scale) = self.routing.scale.filter(|scale| !(scale.is_finite() && *scale > 0.0)) {
            diagnostics.add(format!("scale of expert weights: expected a finite number above 0, found {scale}"));
        }
    }

    /// Applies the layer's experts to `x` `[hidden size, tokens]`; the result has the same shape.
    pub fn build(&self, builder: &mut Builder, x: ValueId) -> Built {
        let tokens = builder.batch().tokens;
        let (ids, weights) = self.route(builder, x)?;
        let hidden_size = builder.hidden_size();
        let each = builder.node("ffn_moe_in", Op::reshape(&[hidden_size, 1, tokens]), &[x])?;
        let up = builder.chosen("ffn_moe_up", "ffn_up_exps", each, ids)?;
        let gate = builder.chosen("ffn_moe_gate", "ffn_gate_exps", each, ids)?;
        let hidden = self.activation.build_gated(builder, "ffn_moe", gate, up)?;
        let down = builder.chosen("ffn_moe_down", "ffn_down_exps", hidden, ids)?;
        let weighted = builder.node("ffn_moe_weighted", Arithmetic::Mul, &[down, weights])?;
        // The sum over the experts of a token needs them innermost.
        let turned = builder.node("ffn_moe_turned", Arrange::Transpose, &[weighted])?;
        let sum = builder.node("ffn_moe_sum", Reduce { rule: Reduction::SumRows }, &[turned])?;
        let out = builder.node("ffn_moe_out", Op::reshape(&[hidden_size, tokens]), &[sum])?;
        let Some(shared) = self.shared else { return Ok(out) };
        let shared = self.shared(builder, shared, x)?;
        builder.node("ffn_out", Arithmetic::Add, &[out, shared])
    }

    /// The experts of each token, `[used, tokens]`, and their weights, `[1, used, tokens]`.
    fn route(&self, builder: &mut Builder, x: ValueId) -> Result<(ValueId, ValueId), trueup_graph::ShapeError> {
        let tokens = builder.batch().tokens;
        let Experts { count, used, routing, .. } = *self;
        let logits = builder.product("ffn_moe_logits", ROUTER, x)?;
        let probabilities = match routing.gating {
            Gating::Softmax => builder.node("ffn_moe_probs", SoftMax { scale: 1.0, max_bias: 0.0 }, &[logits])?,
            Gating::Sigmoid => builder.node("ffn_moe_probs", Unary::Sigmoid, &[logits])?,
        };
        let mut scores = probabilities;
        if self.has_selection_bias {
            let bias = builder.weight("exp_probs_b", "bias");
            scores = builder.node("ffn_moe_probs_biased", Arithmetic::Add, &[scores, bias])?;
        }
        if let Some(groups) = self.groups {
            scores = groups.limited(builder, scores, count)?;
        }
        let ids = builder.node("ffn_moe_topk", Rank { rule: RankRule::TopK { k: used } }, &[scores])?;
        let rows = builder.node("ffn_moe_probs_rows", Op::reshape(&[1, count, tokens]), &[probabilities])?;
        let activation = builder.batch().activation;
        let mut weights = builder.node("ffn_moe_weights", Op::get_rows(activation), &[rows, ids])?;
        if routing.is_renormalized {
            let flat = builder.node("ffn_moe_weights_flat", Op::reshape(&[used, tokens]), &[weights])?;
            let sum = builder.node("ffn_moe_weights_sum", Reduce { rule: Reduction::SumRows }, &[flat])?;
            let sum = match routing.gating {
                Gating::Softmax => sum,
                Gating::Sigmoid => {
                    let scale = Unary::Scale { factor: 1.0, bias: SUM_EPSILON };
                    builder.node("ffn_moe_weights_sum_epsilon", scale, &[sum])?
                }
            };
            let shares = builder.node("ffn_moe_weights_norm", Arithmetic::Div, &[flat, sum])?;
            weights = builder.node("ffn_moe_weights_rows", Op::reshape(&[1, used, tokens]), &[shares])?;
        }
        if let Some(scale) = routing.scale {
            weights = builder.scaled("ffn_moe_weights_scaled", scale, weights)?;
        }
        Ok((ids, weights))
    }

    fn shared(&self, builder: &mut Builder, shared: SharedExpert, x: ValueId) -> Built {
        let gate = builder.product("ffn_shexp_gate", "ffn_gate_shexp", x)?;
        let up = builder.product("ffn_shexp_up", "ffn_up_shexp", x)?;
        let hidden = self.activation.build_gated(builder, "ffn_shexp", gate, up)?;
        let out = builder.product("ffn_shexp", "ffn_down_shexp", hidden)?;
        if !shared.is_gated {
            return Ok(out);
        }
        let share = builder.product("shared_expert_gate", "ffn_gate_inp_shexp", x)?;
        let share = builder.node("shared_expert_gate_sigmoid", Unary::Sigmoid, &[share])?;
        builder.node("ffn_shexp_gated", Arithmetic::Mul, &[out, share])
    }
}
