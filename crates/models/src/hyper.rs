//! The numbers of one model, valid by construction: the only way to a graph.
//!
//! ```text
//! config.json ─┐
//!              ├─▶ Draft (as read) ── validate: all faults at once ──▶ Hyper (private fields)
//! GGUF keys ───┘
//! ```

use crate::architecture::Condition;
use crate::faults::Faults;
use crate::field::Field;
use crate::number::{nearest_f32, wide};
use crate::rope::RopeDescription;

/// Numbers as a file gives them, not looked at yet.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Draft {
    pub width: u64,
    pub layers: u64,
    pub heads: u64,
    pub kv_heads: u64,
    pub head_size: u64,
    pub ffn: u64,
    pub vocabulary: u64,
    pub context: u64,
    pub epsilon: f64,
    pub rope: RopeDescription,
    pub window: Option<DraftWindow>,
    /// The largest exponent of ALiBi's slopes.
    pub alibi: Option<f64>,
    pub prefix: Option<Prefix>,
}

/// A sliding window and the layers that have it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct DraftWindow {
    pub size: u64,
    pub layers: WindowLayers,
}

/// Which layers have a window, as files say it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum WindowLayers {
    /// This layer and all above it.
    From(u64),
    /// One entry for each layer.
    Listed(Vec<bool>),
}

/// The numbers of one model. Every product of two of them fits in 63 bits; heads divide; the rotation fits in a head.
#[derive(Clone, PartialEq, Debug)]
pub struct Hyper {
    width: usize,
    layers: usize,
    heads: usize,
    kv_heads: usize,
    head_size: usize,
    ffn: usize,
    vocabulary: usize,
    context: usize,
    epsilon: f32,
    rope: RopeDescription,
    window: Option<Window>,
    alibi: Option<f32>,
    prefix: Option<Prefix>,
    conditions: Conditions,
}

/// The tokens that divide a text whose beginning sees itself in both directions: `words of the prompt | mark | end, the
/// answer`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    /// The first token behind the beginning.
    pub end: u32,
    /// All tokens from `end` on have the position of the first of these.
    pub mark: u32,
    /// Looked for where `mark` is not in the text.
    pub other_mark: u32,
}

impl Prefix {
    /// Where the first token behind the beginning stands in a text; `None` where there is none yet, and every token
    /// sees what is before it.
    pub fn end_in(&self, ids: impl IntoIterator<Item = u32>) -> Option<usize> {
        ids.into_iter().position(|id| id == self.end)
    }
}

/// A sliding window: a token at position `p` sees positions `j <= p` with `p - j < size`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Window {
    size: usize,
    layers: Vec<bool>,
}

impl Window {
    /// Positions that a token sees, its own included; at least 1.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether each layer has the window; the others see everything.
    pub fn layers(&self) -> &[bool] {
        &self.layers
    }
}

/// Which optional tensors a model has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conditions([bool; Condition::ALL.len()]);

impl Default for Conditions {
    fn default() -> Conditions {
        Conditions(Condition::ALL.map(|condition| condition == Condition::Always))
    }
}

impl Conditions {
    /// Whether tensors under this condition are there.
    pub fn holds(&self, condition: Condition) -> bool {
        Condition::ALL.into_iter().zip(self.0).any(|(listed, holds)| listed == condition && holds)
    }

    pub(crate) fn set(&mut self, condition: Condition, holds: bool) {
        for (slot, _) in self.0.iter_mut().zip(Condition::ALL).filter(|(_, listed)| *listed == condition) {
            *slot = holds;
        }
    }
}

impl Hyper {
    /// Checks a draft; `tensors` is how many tensors the file has. `None` when something was wrong, which `faults` then
    /// tells.
    pub(crate) fn new(draft: Draft, tensors: usize, conditions: Conditions, faults: &mut Faults) -> Option<Hyper> {
        let before = faults.list().len();
        check_counts(&draft, tensors, faults);
        check_heads(&draft, faults);
        draft.rope.check(draft.head_size, faults);
        let epsilon = nearest_f32(draft.epsilon);
        if !(epsilon.is_finite() && epsilon > 0.0) {
            faults.add(format!("norm epsilon: expected a finite number above 0, found {}", draft.epsilon));
        }
        let alibi = draft.alibi.map(nearest_f32);
        if let Some(exponent) = draft.alibi.filter(|_| alibi.is_none_or(|alibi| !(alibi.is_finite() && alibi > 0.0))) {
            faults.add(format!("largest ALiBi exponent: expected a finite number above 0, found {exponent}"));
        }
        let ids = draft.prefix.iter().flat_map(|prefix| [prefix.end, prefix.mark, prefix.other_mark]);
        for id in ids.filter(|id| u64::from(*id) >= draft.vocabulary) {
            faults.add(format!("a special token has the id {id}, but the vocabulary has {} tokens", draft.vocabulary));
        }
        if faults.list().len() > before {
            return None;
        }
        let window = match draft.window {
            Some(window) => Some(Window::new(window, draft.layers, faults)?),
            None => None,
        };
        let size = |count: u64| usize::try_from(count).ok();
        Some(Hyper {
            width: size(draft.width)?,
            layers: size(draft.layers)?,
            heads: size(draft.heads)?,
            kv_heads: size(draft.kv_heads)?,
            head_size: size(draft.head_size)?,
            ffn: size(draft.ffn)?,
            vocabulary: size(draft.vocabulary)?,
            context: size(draft.context)?,
            epsilon,
            rope: draft.rope,
            window: window.filter(|window| window.layers.contains(&true)),
            alibi,
            prefix: draft.prefix,
            conditions,
        })
    }

    /// Elements of the residual stream.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Blocks.
    pub fn layers(&self) -> usize {
        self.layers
    }

    /// Attention heads; a multiple of [`Hyper::kv_heads`].
    pub fn heads(&self) -> usize {
        self.heads
    }

    /// Heads of the KV cache.
    pub fn kv_heads(&self) -> usize {
        self.kv_heads
    }

    /// Elements of a head, of queries, keys and values alike.
    pub fn head_size(&self) -> usize {
        self.head_size
    }

    /// Elements of a token's queries, all heads: no more than a width may have, as was checked.
    pub fn query_elements(&self) -> usize {
        self.heads().saturating_mul(self.head_size())
    }

    /// Elements of a token's keys, and of its values: no more than [`Hyper::query_elements`].
    pub fn kv_elements(&self) -> usize {
        self.kv_heads().saturating_mul(self.head_size())
    }

    /// Elements of the feed-forward's hidden layer.
    pub fn ffn(&self) -> usize {
        self.ffn
    }

    /// Tokens: rows of the embedding.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Positions that the model was made for.
    pub fn context(&self) -> usize {
        self.context
    }

    /// What norms add to the mean of squares.
    pub fn epsilon(&self) -> f32 {
        self.epsilon
    }

    /// How positions rotate heads.
    pub fn rope(&self) -> &RopeDescription {
        &self.rope
    }

    /// The sliding window, if some layer has one.
    pub fn window(&self) -> Option<&Window> {
        self.window.as_ref()
    }

    /// The largest exponent of the slopes by which positions lower scores (ALiBi); `None` where positions rotate heads.
    pub fn alibi(&self) -> Option<f32> {
        self.alibi
    }

    /// The tokens that divide a text, where the tokens of its beginning see each other and positions have two rows.
    pub fn prefix(&self) -> Option<&Prefix> {
        self.prefix.as_ref()
    }

    /// Which optional tensors the model has.
    pub fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// Whether the output head is the embedding.
    pub fn is_tied(&self) -> bool {
        !self.conditions.holds(Condition::Untied)
    }

    /// The same numbers for a model whose head is a matrix of its own, whatever its description says.
    #[must_use]
    pub fn untied(mut self) -> Hyper {
        self.conditions.set(Condition::Untied, true);
        self
    }

    /// The same numbers for a model that has only the tokens of these ids, rising; `None` where one is missing that
    /// divides texts, and where none is left.
    #[must_use]
    pub fn slimmed(self, kept: &[u32]) -> Option<Hyper> {
        let new = |id: u32| kept.binary_search(&id).ok().and_then(|place| u32::try_from(place).ok());
        let prefix = match self.prefix {
            Some(Prefix { end, mark, other_mark }) => {
                Some(Prefix { end: new(end)?, mark: new(mark)?, other_mark: new(other_mark)? })
            }
            None => None,
        };
        (!kept.is_empty()).then_some(Hyper { vocabulary: kept.len(), prefix, ..self })
    }

    /// The same numbers with other optional tensors.
    #[must_use]
    pub(crate) fn with_conditions(self, conditions: Conditions) -> Hyper {
        Hyper { conditions, ..self }
    }
}

impl Window {
    fn new(draft: DraftWindow, layers: u64, faults: &mut Faults) -> Option<Window> {
        let window = Window {
            size: usize::try_from(draft.size).ok().filter(|&size| size > 0 && size < 1 << 31).or_else(|| {
                faults.add(format!("sliding window: expected 1 to 2^31 - 1 tokens, found {}", draft.size));
                None
            })?,
            layers: match draft.layers {
                WindowLayers::From(first) => (0..layers).map(|layer| layer >= first).collect(),
                WindowLayers::Listed(list) => list,
            },
        };
        if wide(window.layers.len()) != layers {
            faults.add(format!(
                "sliding windows: expected one for each of {layers} layers, found {}",
                window.layers.len()
            ));
            return None;
        }
        Some(window)
    }
}

fn check_counts(draft: &Draft, tensors: usize, faults: &mut Faults) {
    let counts = [
        (Field::Width, draft.width),
        (Field::Layers, draft.layers),
        (Field::Heads, draft.heads),
        (Field::KvHeads, draft.kv_heads),
        (Field::HeadSize, draft.head_size),
        (Field::Ffn, draft.ffn),
        (Field::Vocabulary, draft.vocabulary),
        (Field::Context, draft.context),
    ];
    for (field, count) in counts {
        let most = field.count_max().unwrap_or(u64::MAX);
        if count == 0 || count > most {
            faults.add(format!("{}: expected a number from 1 to {most}, found {count}", field.gguf_key()));
        }
    }
    if draft.layers > wide(tensors) {
        faults
            .add(format!("expected at least one tensor for each of {} layers, found {tensors} tensors", draft.layers));
    }
}

fn check_heads(draft: &Draft, faults: &mut Faults) {
    if draft.kv_heads > 0 && !draft.heads.is_multiple_of(draft.kv_heads) {
        faults.add(format!(
            "expected a number of KV heads that divides the {} attention heads, found {}",
            draft.heads, draft.kv_heads
        ));
    }
    let elements_max = Field::Width.count_max().unwrap_or(u64::MAX);
    if draft.heads.saturating_mul(draft.head_size) > elements_max {
        faults.add(format!(
            "expected heads with at most {elements_max} elements in total, found {} heads of {}",
            draft.heads, draft.head_size
        ));
    }
}
