//! The recipe chooses the type of each tensor, and gives the reason.
//!
//! ```text
//! tensors ─ never quantized? ─ option for it? ─ rule? ─ scheme ─ whole blocks? ─ larger than before? ─▶ Choice
//!  source     kept                T              T       base,      next type       keep the source
//!                                                        mixed
//! ```
//!
//! A recipe is a pure function of the tensors and a few [`ModelFacts`]. The schemes are a table ([`table`]).

mod facts;
mod faults;
mod kept;
mod layers;
mod parameters;
mod role;
mod rule;
mod scheme;
mod steps;
mod table;
#[cfg(test)]
mod tests;
mod width;

pub use facts::ModelFacts;
pub use kept::stays_f32;
pub use parameters::RecipeParameters;
pub(crate) use role::is_end;
pub use rule::{Rule, RuleError, written_type, written_types};
pub use scheme::Scheme;

use layers::{Place, places};
use role::Role;
use scheme::Subject;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use trueup_blocks::DType;
use trueup_formats::{Error, TensorInfo, listed, quote};

/// A scheme, options for single tensors, and rules by name.
///
/// ```
/// use trueup_blocks::DType;
/// use trueup_formats::TensorInfo;
/// use trueup_quantize::{ModelFacts, Recipe, Rule};
///
/// let matrices_of_layer_0: Rule = "^blk\\.0\\.(attn|ffn)_[a-z]+\\.weight$=q8_0".parse()?;
/// let recipe = Recipe::new(Some(DType::Q4_0)).rules(vec![matrices_of_layer_0]);
/// let tensor = |name, shape: &[u64]| TensorInfo::new(name, shape, DType::F32);
/// let tensors = [
///     tensor("blk.0.attn_q.weight", &[64, 64])?,
///     tensor("blk.0.attn_norm.weight", &[64])?,
///     tensor("blk.1.attn_q.weight", &[64, 64])?,
/// ];
/// let choices = recipe.choose(&tensors, &ModelFacts::default())?;
/// let types: Vec<DType> = choices.iter().map(|choice| choice.dtype).collect();
/// // The norm has one dimension: the pattern finds it too, but no rule quantizes it.
/// assert_eq!(types, [DType::Q8_0, DType::F32, DType::Q4_0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Recipe {
    scheme: Option<Scheme>,
    pure: bool,
    strict: bool,
    output: Option<DType>,
    token_embedding: Option<DType>,
    leave_output: bool,
    rules: Vec<Rule>,
    /// Types of single tensors by their names.
    assigned: BTreeMap<String, DType>,
}

/// The types that a tensor can get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Freedom {
    /// It is never quantized.
    Kept,
    /// An option or a rule names its type.
    Named(DType),
    /// It can get any type that fits.
    Free,
}

/// The choice for one tensor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The new type.
    pub dtype: DType,
    /// Why the tensor does not have the requested type; empty if it does.
    pub note: String,
    /// Whether the tensor cannot get the requested type. Exceptions of a scheme are not counted.
    pub falls_short: bool,
}

impl Recipe {
    /// Gives `dtype` to all matrices, or uses the scheme of this name. `None` keeps all types.
    pub fn new(dtype: Option<DType>) -> Recipe {
        Recipe::of(dtype.map(Scheme::from))
    }

    /// Uses a scheme. `None` keeps all types.
    pub fn of(scheme: Option<Scheme>) -> Recipe {
        Recipe {
            scheme,
            pure: false,
            strict: false,
            output: None,
            token_embedding: None,
            leave_output: false,
            rules: Vec::new(),
            assigned: BTreeMap::new(),
        }
    }

    /// Gives the base type of the scheme to all matrices, including the embedding and the output head.
    #[must_use]
    pub fn pure(mut self, pure: bool) -> Recipe {
        self.pure = pure;
        self
    }

    /// Makes it an error if a tensor cannot get the requested type: because its rows are not whole blocks, or because a
    /// rule matches a tensor that is never quantized. Otherwise, there is a note.
    #[must_use]
    pub fn strict(mut self, strict: bool) -> Recipe {
        self.strict = strict;
        self
    }

    /// Sets the type of the output head, or of the token embedding if the model has no separate output head.
    #[must_use]
    pub fn output(mut self, dtype: Option<DType>) -> Recipe {
        self.output = dtype;
        self
    }

    /// Sets the type of the token embedding.
    #[must_use]
    pub fn token_embedding(mut self, dtype: Option<DType>) -> Recipe {
        self.token_embedding = dtype;
        self
    }

    /// Keeps the type of the output head.
    #[must_use]
    pub fn leave_output(mut self, leave_output: bool) -> Recipe {
        self.leave_output = leave_output;
        self
    }

    /// Sets the types of tensors that match a rule.
    #[must_use]
    pub fn rules(mut self, rules: Vec<Rule>) -> Recipe {
        self.rules = rules;
        self
    }

    /// Sets the types of tensors by name. Options and rules have priority.
    #[must_use]
    pub fn assigned(mut self, assigned: BTreeMap<String, DType>) -> Recipe {
        self.assigned = assigned;
        self
    }

    /// Whether types were assigned to single tensors.
    pub fn has_assigned(&self) -> bool {
        !self.assigned.is_empty()
    }

    /// The types that each tensor can get, in file order.
    pub fn freedom(&self, tensors: &[TensorInfo], facts: &ModelFacts) -> Vec<Freedom> {
        let is_tied = !tensors.iter().any(|tensor| Role::of(&tensor.name) == Role::Output);
        let of = |tensor: &TensorInfo| {
            let is_number = tensor.dtype.is_float() || tensor.dtype.is_quantized();
            if !is_number || self.kept(tensor, facts).is_some() {
                return Freedom::Kept;
            }
            match self.named(tensor, Role::of(&tensor.name), is_tied) {
                Some(dtype) => Freedom::Named(dtype),
                None => Freedom::Free,
            }
        };
        tensors.iter().map(of).collect()
    }

    /// The first command-line flag, besides the type, that this recipe needs; `None` if it only has a type.
    pub fn selection_flag(&self) -> Option<&'static str> {
        let flags = [
            ("--pure", self.pure),
            ("--strict", self.strict),
            ("--output-tensor-type", self.output.is_some()),
            ("--token-embedding-type", self.token_embedding.is_some()),
            ("--leave-output-tensor", self.leave_output),
            ("--rule", !self.rules.is_empty()),
        ];
        flags.into_iter().find(|(_, is_given)| *is_given).map(|(flag, _)| flag)
    }

    /// Rejects an option that has no effect because no type is quantized. `has_importance` is whether `--imatrix` was
    /// given, and `path` is the model.
    ///
    /// # Errors
    /// Names the first such option.
    pub fn expect_effect(&self, path: &Path, has_importance: bool) -> Result<(), Error> {
        let is_scheme = self.scheme.is_some_and(|scheme| scheme.base().is_quantized());
        let named = self.rules.iter().map(|rule| rule.dtype).chain(self.output).chain(self.token_embedding);
        let mut named = named.peekable();
        let is_named = named.peek().is_some();
        let is_any = is_scheme || named.any(DType::is_quantized);
        let flags = [
            ("--imatrix", has_importance && !is_any),
            ("--pure", self.pure && !is_scheme),
            ("--strict", self.strict && !is_scheme && !is_named),
        ];
        let Some((flag, _)) = flags.into_iter().find(|(_, is_idle)| *is_idle) else { return Ok(()) };
        let problem = match self.scheme {
            Some(scheme) => format!("{flag} has no effect with --type {}", scheme.name()),
            None => format!("{flag} has no effect without --type"),
        };
        Err(Error::new(path, problem).help(format!("use a quantized type such as q4_k_m, or omit {flag}")))
    }

    /// The scheme, if one was given.
    pub fn scheme(&self) -> Option<Scheme> {
        self.scheme
    }

    /// One choice per tensor, in file order.
    ///
    /// # Errors
    /// Lists all of these: a rule or an option that applies to no tensor, an option whose type does not fit the rows, a
    /// scheme that needs an importance matrix, and, when strict, tensors that cannot get their type.
    pub fn choose(&self, tensors: &[TensorInfo], facts: &ModelFacts) -> Result<Vec<Choice>, RuleError> {
        let choices = self.choices(tensors, facts);
        let mut faults = self.faults(tensors, &choices, facts);
        if self.strict {
            let reasons = shortfalls(tensors, &choices);
            if !reasons.is_empty() {
                faults.push(format!("{}; change the type or the rule, or omit --strict", listed(&reasons, "; ")));
            }
        }
        if faults.is_empty() { Ok(choices) } else { Err(RuleError(listed(&faults, "; "))) }
    }

    /// A note for each rule without effect, because earlier rules match all of its tensors.
    pub fn notes(&self, tensors: &[TensorInfo]) -> Vec<String> {
        let first = |tensor: &TensorInfo| self.rules.iter().position(|rule| rule.pattern.is_match(&tensor.name));
        let used: HashSet<usize> = tensors.iter().filter_map(first).collect();
        let idle = self.rules.iter().enumerate().filter(|(place, _)| !used.contains(place));
        let note = |(_, rule): (usize, &Rule)| {
            format!("--rule {}={} has no effect: earlier rules match all of its tensors", rule.pattern, rule.dtype)
        };
        idle.map(note).collect()
    }

    fn choices(&self, tensors: &[TensorInfo], facts: &ModelFacts) -> Vec<Choice> {
        let is_tied = !tensors.iter().any(|tensor| Role::of(&tensor.name) == Role::Output);
        let kept: Vec<Option<&'static str>> = tensors.iter().map(|tensor| self.kept(tensor, facts)).collect();
        let is_quantized: Vec<bool> = kept.iter().map(Option::is_none).collect();
        let places = places(tensors, &is_quantized, facts);
        let choose = |((tensor, kept), place): ((&TensorInfo, Option<&'static str>), Place)| match kept {
            _ if !(tensor.dtype.is_float() || tensor.dtype.is_quantized()) => self.not_a_number(tensor),
            Some(what) => self.not_quantized(tensor, what),
            None => {
                let role = Role::of(&tensor.name);
                let is_stack = tensor.shape.get(2).is_some_and(|size| *size > 1);
                let subject = Subject { role, place, is_stack, facts };
                self.fitted(tensor, self.wanted(tensor, &subject, is_tied))
            }
        };
        tensors.iter().zip(kept).zip(places).map(choose).collect()
    }
}

/// The tensors that cannot get their type, one clause for each reason, in the order of the tensors.
fn shortfalls(tensors: &[TensorInfo], choices: &[Choice]) -> Vec<String> {
    let mut reasons: Vec<(&str, &str, usize)> = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::new();
    for (tensor, choice) in tensors.iter().zip(choices).filter(|(_, choice)| choice.falls_short) {
        let number = *known.entry(&choice.note).or_insert(reasons.len());
        match reasons.get_mut(number) {
            Some((_, _, count)) => *count += 1,
            None => reasons.push((&choice.note, &tensor.name, 1)),
        }
    }
    let clause = |(note, first, count): (&str, &str, usize)| match count {
        1 => format!("{} would be {note}", quote(first)),
        count => format!("{count} tensors (first {}) would be {note}", quote(first)),
    };
    reasons.into_iter().map(clause).collect()
}
