//! An architecture as tables without code, and the list of all architectures.
//!
//! Markers select between architectures that share a class name: keys of `config.json` that are present, absent or
//! true, never a path and never the class name alone. Each marker that matches produces a note.

use crate::field::Field;
use crate::gap::Gap;
use crate::role::Role;
use trueup_graph::op::RopePairs;

/// Every architecture. Where several share a GGUF name, the first one reads the GGUF file.
pub static ARCHITECTURES: &[&Architecture] = &[
    &crate::llama::LLAMA,
    &crate::mistral::MISTRAL,
    &crate::llama2c::LLAMA2C,
    &crate::internlm::INTERNLM,
    &crate::qwen2::QWEN2,
    &crate::qwen::QWEN,
    &crate::qwen3::QWEN3,
    &crate::baichuan::BAICHUAN,
    &crate::chatglm::CHATGLM,
    &crate::chatglm1::CHATGLM1,
    &crate::moss::MOSS,
];

/// One architecture: the names it answers to, its hyper-parameters, its tensors and the parts of its block.
#[derive(Debug)]
pub struct Architecture {
    /// `general.architecture` in a GGUF file, and the prefix of its keys.
    pub gguf_name: &'static str,
    /// Entries of `architectures` in `config.json` that mean this one.
    pub classes: &'static [&'static str],
    /// Whether its class only stands in descriptions that the reader of another format makes, so that nobody is told to
    /// write it.
    pub is_internal: bool,
    /// What tells it from another architecture with a class of the same name: any of these signs. The one without signs
    /// is what remains.
    pub told_by: &'static [Sign],
    /// The kind of model that FastLLM knows by these names of tensors, so that a `.flm` file is written of them.
    pub flm_name: Option<&'static str>,
    /// Where each number of the description stands.
    pub fields: &'static [FieldRule],
    /// Keys of `config.json` that decide whether some tensors are there.
    pub flags: &'static [FlagRule],
    /// What else in a description shows what the model has.
    pub signs: &'static [SignRule],
    /// Keys that may be absent but must not say anything else: what is not supported has another value there.
    pub fixed: &'static [Fixed],
    /// Where a sliding window is described; `None` when the class knows none.
    pub window: Option<WindowRule>,
    /// All tensors that carry weights.
    pub tensors: &'static [TensorRule],
    /// Tensors of old checkpoints that hold nothing of their own, such as tables that are computed anyway.
    pub ignorable: &'static [&'static str],
    /// What a layer is made of.
    pub parts: Parts,
    /// What other programs do not take from a GGUF file of this name.
    pub gaps: &'static [Gap],
}

/// Where one number stands in `config.json`, and what it is when it does not.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FieldRule {
    /// Which number.
    pub field: Field,
    /// Their key.
    pub theirs: &'static str,
    /// What holds when the key is absent.
    pub missing: Missing,
    /// What the number there is counted in: 1, but for the base of the rotation in descriptions that give its multiple.
    pub unit: f64,
    /// How often the number there counts what is meant: 1, but where it counts gate and up together.
    pub several: u64,
}

/// The value of an absent key: the default of the class in the library that wrote the file.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Missing {
    /// There is none: an error.
    Refused,
    /// A number.
    Is(f64),
    /// A number for an absent key; an explicit `null` is the number of attention heads.
    IsOrHeads(f64),
    /// As many as attention heads.
    Heads,
    /// So many times `hidden_size`; an explicit `null` too.
    Widths(u64),
    /// `hidden_size / num_attention_heads`.
    WidthOverHeads,
    /// What this key says, which must be there.
    Key(&'static str),
    /// A number for an absent key; an explicit `null` is `hidden_size / num_attention_heads`.
    IsOrWidthOverHeads(f64),
}

/// A key of `config.json` that is true when the tensors under a condition are there.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlagRule {
    /// Their key.
    pub theirs: &'static str,
    /// What holds when the key is absent.
    pub missing: bool,
    /// The conditions that have the key's value.
    pub conditions: &'static [Condition],
    /// Whether the conditions are the opposite of the key.
    pub inverted: bool,
}

/// Something that models of a class have when one of its signs is seen: versions of a class that no key tells apart.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SignRule {
    /// What holds then.
    pub condition: Condition,
    /// Any of these.
    pub signs: &'static [Sign],
    /// What a person should know then.
    pub note: &'static str,
}

/// A sign in a description.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Sign {
    /// The key is there, whatever it says.
    Present(&'static str),
    /// There is no such key.
    Absent(&'static str),
    /// The key is true, or 1. What is written for a model that has it.
    True(&'static str),
    /// The vocabulary has so many tokens.
    Vocabulary(u64),
}

/// A key that may only have one value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fixed {
    /// Their key.
    pub theirs: &'static str,
    /// The values that are supported, as JSON prints them; an absent key and `null` are fine.
    pub allowed: &'static [&'static str],
}

/// Where a sliding window is described: `sliding_window`, and which layers have it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WindowRule {
    /// The window of a description without the key; an explicit `null` is no window.
    pub missing: u64,
    /// A key that must be true for the window to hold; false when absent.
    pub enabled_by: Option<&'static str>,
    /// A key with the first layer that has the window, and its default; earlier layers see everything. `layer_types`
    /// wins over it.
    pub first_layer: Option<(&'static str, u64)>,
}

/// One tensor, or one in each layer: their name and what becomes of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TensorRule {
    /// What the tensor is for; gives our name and its shape.
    pub role: Role,
    /// Their name, `{l}` standing for the layer; `None` when it is computed at conversion.
    pub theirs: Option<&'static str>,
    /// Whether it is there.
    pub when: Condition,
    /// What is done to its rows at conversion.
    pub transform: Transform,
}

/// What decides whether a tensor is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// In every model of the class.
    Always,
    /// The output head is a matrix of its own.
    Untied,
    /// Projections to queries, keys and values have a bias.
    AttentionBias,
    /// The projection of the attention's output has a bias.
    AttentionOutputBias,
    /// The feed-forward's matrices have a bias.
    FfnBias,
    /// Frequencies of the rotation are divided by stored factors.
    RopeFactors,
    /// Positions lower scores by their distance, and nothing is rotated. No tensor shows it.
    Alibi,
    /// The head's rows are divided by their lengths. Conversion does it, so no GGUF file shows it.
    UnitHead,
}

impl Condition {
    /// Every condition, in the order of the enum.
    pub const ALL: [Condition; 8] = [
        Condition::Always,
        Condition::Untied,
        Condition::AttentionBias,
        Condition::AttentionOutputBias,
        Condition::FfnBias,
        Condition::RopeFactors,
        Condition::Alibi,
        Condition::UnitHead,
    ];
}

/// What conversion does to the rows of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transform {
    /// Nothing.
    None,
    /// Rows of queries, keys and values that stand in groups become queries of all heads, then keys, then values.
    KindsApart(Grouped),
    /// In each head, rows of rotated pairs `(i, i + n/2)` become neighbours `(2 i, 2 i + 1)`.
    PermuteRope(Heads),
    /// Each row is divided by its length, where the model does that whenever it multiplies ([`Condition::UnitHead`]).
    UnitRows,
}

/// How a checkpoint groups the rows of queries, keys and values of one tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grouped {
    /// Head by head: its queries, its keys, its values.
    ByHead,
    /// A quarter of all heads after the other, as parts of one computer each: their queries, their values, their keys.
    ByQuarter,
}

/// Which heads a matrix projects to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heads {
    /// The attention heads.
    Query,
    /// The heads of the KV cache.
    Key,
}

/// What a layer is made of.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Parts {
    /// The norm before attention, before the feed-forward and behind the last layer.
    pub norm: Norm,
    /// Which elements of a head are rotated together, in the GGUF file.
    pub pairs: RopePairs,
    /// How much of a head is rotated where a description does not say it.
    pub rotated: Rotated,
    /// What the results of attention and feed-forward are added to.
    pub residual: Residual,
    /// Whether the feed-forward takes what attention takes, beside it, instead of what comes of it.
    pub is_parallel: bool,
    /// The feed-forward.
    pub feed_forward: FeedForward,
    /// What a text begins with, where the tokens of its beginning see each other.
    pub prefix: Option<PrefixRule>,
    /// What is known of its positions where they lower scores by distance.
    pub alibi: Option<AlibiRule>,
}

/// Positions that lower scores by their distance (Press et al. 2022), for models of an architecture that have them
/// ([`Condition::Alibi`]).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AlibiRule {
    /// The largest exponent of the slopes.
    pub max_bias: f32,
    /// A GGUF file without the key of the exponent has them all the same when it has so many layers.
    pub layers: usize,
}

/// A beginning of texts whose tokens see each other, and positions in two rows (GLM, Du et al. 2022, section 2): where
/// the tokens stand that divide a text.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PrefixRule {
    /// The key of the first token behind the beginning, and what holds when it is absent.
    pub end: (&'static str, u32),
    /// The same of the token whose position all tokens behind the beginning have; of several in a text the first.
    pub mark: (&'static str, u32),
    /// The same of the token that is looked for where that one is not in the text.
    pub other_mark: (&'static str, u32),
}

/// What the results of attention and feed-forward are added to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Residual {
    /// What goes into the norm before them.
    Stream,
    /// What comes out of that norm, times `sqrt(2 layers)`.
    ScaledNorm,
}

/// How much of a head positions rotate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rotated {
    /// All of it.
    Whole,
    /// Its first half.
    Half,
    /// As many elements as a key says, or so many where it is absent.
    Counted(&'static str, u64),
}

/// A kind of norm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Norm {
    /// Root mean square, with a weight.
    Rms,
    /// Mean and variance, with a weight and a bias.
    Layer,
}

/// A kind of feed-forward.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FeedForward {
    /// `down(silu(gate(x)) * up(x))`.
    GatedSilu,
    /// `down(gelu(up(x)))`, gelu by the hyperbolic tangent.
    Gelu,
}

impl Parts {
    /// The parts of Llama, with rotated pairs as they lie.
    pub(crate) const fn new(pairs: RopePairs) -> Parts {
        Parts {
            norm: Norm::Rms,
            pairs,
            rotated: Rotated::Whole,
            residual: Residual::Stream,
            is_parallel: false,
            feed_forward: FeedForward::GatedSilu,
            alibi: None,
            prefix: None,
        }
    }
}

impl FieldRule {
    pub(crate) const fn new(field: Field, theirs: &'static str, missing: Missing) -> FieldRule {
        FieldRule { field, theirs, missing, unit: 1.0, several: 1 }
    }

    /// The same, where the number counts each so often.
    pub(crate) const fn of_several(self, several: u64) -> FieldRule {
        FieldRule { several, ..self }
    }

    /// The same, counted in a unit.
    pub(crate) const fn in_units_of(self, unit: f64) -> FieldRule {
        FieldRule { unit, ..self }
    }
}

impl TensorRule {
    /// A tensor of every model of the class, kept as it is.
    pub(crate) const fn new(role: Role, theirs: &'static str) -> TensorRule {
        TensorRule { role, theirs: Some(theirs), when: Condition::Always, transform: Transform::None }
    }

    /// A tensor that conversion computes from the description.
    pub(crate) const fn computed(role: Role, when: Condition) -> TensorRule {
        TensorRule { role, theirs: None, when, transform: Transform::None }
    }

    /// The same, there only under a condition.
    pub(crate) const fn when(self, when: Condition) -> TensorRule {
        TensorRule { when, ..self }
    }

    /// The same, with rows that are divided by their lengths where the model does that.
    pub(crate) const fn unit_rows(self) -> TensorRule {
        TensorRule { transform: Transform::UnitRows, ..self }
    }

    /// The same, with rows of queries, keys and values in groups.
    pub(crate) const fn grouped(self, grouped: Grouped) -> TensorRule {
        TensorRule { transform: Transform::KindsApart(grouped), ..self }
    }

    /// The same, going to heads that GGUF rotates by neighbours and the class by halves.
    pub(crate) const fn permuted(self, heads: Heads) -> TensorRule {
        TensorRule { transform: Transform::PermuteRope(heads), ..self }
    }
}

impl Architecture {
    /// The architecture that reads GGUF files with this `general.architecture`.
    pub fn from_gguf_name(name: &str) -> Option<&'static Architecture> {
        ARCHITECTURES.iter().copied().find(|architecture| architecture.gguf_name == name)
    }

    /// The architectures of this class of `config.json`, those with signs first.
    pub(crate) fn of_class(class: &str) -> impl Iterator<Item = &'static Architecture> {
        let is_told = |told: bool| move |architecture: &&&Architecture| architecture.told_by.is_empty() != told;
        let all = ARCHITECTURES.iter().filter(is_told(true)).chain(ARCHITECTURES.iter().filter(is_told(false)));
        all.copied().filter(move |architecture| architecture.classes.contains(&class))
    }

    /// The class names that a `config.json` may have, for messages.
    pub fn classes() -> String {
        let offered = ARCHITECTURES.iter().filter(|a| !a.is_internal && a.told_by.is_empty());
        let all: Vec<&str> = offered.flat_map(|architecture| architecture.classes).copied().collect();
        all.join(", ")
    }

    /// The GGUF names that are known, for messages.
    pub fn gguf_names() -> String {
        let mut all: Vec<&str> = ARCHITECTURES.iter().map(|architecture| architecture.gguf_name).collect();
        all.dedup();
        all.join(", ")
    }

    /// The rule of a role, where the architecture has such a tensor.
    pub fn tensor(&self, role: Role) -> Option<&'static TensorRule> {
        self.tensors.iter().find(|rule| rule.role == role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unambiguous() {
        let without_signs = ARCHITECTURES.iter().filter(|a| a.told_by.is_empty());
        let mut classes: Vec<&str> = without_signs.flat_map(|a| a.classes).copied().collect();
        classes.sort_unstable();
        let count = classes.len();
        classes.dedup();
        assert_eq!(classes.len(), count);
        assert_eq!(Architecture::gguf_names(), "llama, qwen2, qwen3, baichuan, chatglm, chatglm1, moss");
        let offered = "LlamaForCausalLM, LLaMAForCausalLM, MistralForCausalLM, InternLMForCausalLM, Qwen2ForCausalLM, \
                       QWenLMHeadModel, Qwen3ForCausalLM, BaichuanForCausalLM, BaiChuanForCausalLM, ChatGLMModel, ChatGLMForConditionalGeneration, MossForCausalLM";
        assert_eq!(Architecture::classes(), offered);
    }

    #[test]
    fn each_table_names_a_role_and_a_tensor_once() {
        for architecture in ARCHITECTURES {
            for (index, rule) in architecture.tensors.iter().enumerate() {
                for other in &architecture.tensors[..index] {
                    assert_ne!(rule.role, other.role, "{}", architecture.classes[0]);
                    assert!(rule.theirs.is_none() || rule.theirs != other.theirs, "{:?}", rule.theirs);
                }
                if let Some(theirs) = rule.theirs {
                    assert_eq!(theirs.contains("{l}"), rule.role.is_per_layer(), "{theirs}");
                }
            }
        }
    }

    #[test]
    fn each_table_has_every_field() {
        for architecture in ARCHITECTURES {
            for field in Field::ALL {
                let count = architecture.fields.iter().filter(|rule| rule.field == field).count();
                assert_eq!(count, 1, "{field:?} of {}", architecture.classes[0]);
            }
        }
    }
}
