//! Which tensor becomes what.

use regex::Regex;
use trueup_blocks::DType;
use trueup_formats::TensorInfo;

/// The policy: a type for matrices, what is treated apart, and rules by name.
///
/// ```
/// use trueup_blocks::DType;
/// use trueup_quantize::{Recipe, Rule};
///
/// let recipe = Recipe::new(Some(DType::Q4_0)).rules(vec!["blk\\.0\\.=q8_0".parse::<Rule>().unwrap()]);
/// ```
#[derive(Clone, Debug)]
pub struct Recipe {
    dtype: Option<DType>,
    pure: bool,
    strict: bool,
    rules: Vec<Rule>,
}

/// `REGEX=TYPE`: tensors whose name the pattern finds get the type. The first rule that matches wins.
#[derive(Clone, Debug)]
pub struct Rule {
    pattern: Regex,
    dtype: DType,
}

/// A rule that cannot be read, or that finds no tensor; says which and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleError(pub String);

impl std::fmt::Display for RuleError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RuleError {}

/// What happens to one tensor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// What it becomes.
    pub dtype: DType,
    /// Why it does not become what was asked for; empty when it does.
    pub note: String,
}

impl std::str::FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Rule, RuleError> {
        let refuse = |why: String| RuleError(format!("rule {text:?}: {why}"));
        let (pattern, name) = text.rsplit_once('=').ok_or_else(|| refuse("write it as REGEX=TYPE".to_owned()))?;
        let pattern = Regex::new(pattern).map_err(|error| refuse(error.to_string().replace('\n', " ")))?;
        let dtype = DType::from_name(name).filter(|dtype| can_be_written(*dtype));
        let dtype = dtype.ok_or_else(|| refuse(format!("{name:?} is not a type that can be written")))?;
        Ok(Rule { pattern, dtype })
    }
}

/// Whether tensors of this type can be made here.
fn can_be_written(dtype: DType) -> bool {
    dtype.codec().is_some() && dtype != DType::F64
}

impl Recipe {
    /// Matrices become `dtype`, the embedding and the output head q8_0 when it is a 4-bit type; one-dimensional tensors f32. `None` leaves
    /// every tensor as it is.
    pub fn new(dtype: Option<DType>) -> Recipe {
        Recipe { dtype, pure: false, strict: false, rules: Vec::new() }
    }

    /// The embedding and the output head get the type too.
    #[must_use]
    pub fn pure(mut self, pure: bool) -> Recipe {
        self.pure = pure;
        self
    }

    /// A matrix whose rows the blocks do not divide is an error instead of f16.
    #[must_use]
    pub fn strict(mut self, strict: bool) -> Recipe {
        self.strict = strict;
        self
    }

    /// Tensors that a rule names get its type.
    #[must_use]
    pub fn rules(mut self, rules: Vec<Rule>) -> Recipe {
        self.rules = rules;
        self
    }

    /// The type of most matrices, when one was asked for.
    pub fn dtype(&self) -> Option<DType> {
        self.dtype
    }

    /// One choice per tensor, in their order. Fails when a rule finds no tensor, or, when strict, on rows that blocks do not divide;
    /// lists all faults.
    pub fn choose(&self, tensors: &[TensorInfo]) -> Result<Vec<Choice>, RuleError> {
        let idle = self.rules.iter().filter(|rule| !tensors.iter().any(|tensor| rule.pattern.is_match(&tensor.name)));
        let mut faults: Vec<String> =
            idle.map(|rule| format!("rule \"{}={}\" matches no tensor", rule.pattern, rule.dtype)).collect();
        let choices: Vec<Choice> = tensors.iter().map(|tensor| self.choose_one(tensor)).collect();
        if self.strict {
            let kept = tensors.iter().zip(&choices).filter(|(_, choice)| !choice.note.is_empty());
            faults.extend(kept.map(|(tensor, choice)| format!("{}: {}", tensor.name, choice.note)));
        }
        if faults.is_empty() { Ok(choices) } else { Err(RuleError(faults.join("; "))) }
    }

    fn choose_one(&self, tensor: &TensorInfo) -> Choice {
        let dtype = self.wanted(tensor);
        let columns = tensor.shape.first().copied().unwrap_or(1);
        if dtype.row_bytes(columns).is_some() {
            return Choice { dtype, note: String::new() };
        }
        let note = format!("rows of {columns} are not whole blocks of {} for {dtype}: kept as f16", dtype.block_len());
        Choice { dtype: DType::F16, note }
    }

    fn wanted(&self, tensor: &TensorInfo) -> DType {
        if let Some(rule) = self.rules.iter().find(|rule| rule.pattern.is_match(&tensor.name)) {
            return rule.dtype;
        }
        let is_number = tensor.dtype.is_float() || tensor.dtype.is_quantized();
        let is_matrix = tensor.shape.iter().filter(|size| **size != 1).count() > 1;
        let is_end = ["token_embd.weight", "output.weight"].contains(&tensor.name.as_str());
        match self.dtype {
            None => tensor.dtype,
            Some(_) if !is_number => tensor.dtype,
            Some(_) if !is_matrix => DType::F32,
            Some(DType::Q4_0 | DType::Q4_1) if is_end && !self.pure => DType::Q8_0,
            Some(dtype) => dtype,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, shape: &[u64]) -> TensorInfo {
        let bytes = shape.iter().product::<u64>() * 4;
        TensorInfo { name: name.to_owned(), shape: shape.to_vec(), dtype: DType::F32, bytes }
    }

    fn types(recipe: &Recipe, tensors: &[TensorInfo]) -> Vec<DType> {
        recipe.choose(tensors).unwrap().iter().map(|choice| choice.dtype).collect()
    }

    #[test]
    fn the_default_treats_ends_and_norms_apart() {
        let tensors =
            [tensor("token_embd.weight", &[64, 8]), tensor("blk.0.ffn_up.weight", &[64, 8]), tensor("blk.0.n", &[64])];
        let of = |recipe: Recipe| types(&recipe, &tensors);
        assert_eq!(of(Recipe::new(Some(DType::Q4_0))), [DType::Q8_0, DType::Q4_0, DType::F32]);
        assert_eq!(of(Recipe::new(Some(DType::Q4_0)).pure(true)), [DType::Q4_0, DType::Q4_0, DType::F32]);
        assert_eq!(of(Recipe::new(Some(DType::Q5_1))), [DType::Q5_1, DType::Q5_1, DType::F32]);
        assert_eq!(of(Recipe::new(None)), [DType::F32; 3]);
    }

    #[test]
    fn the_first_rule_that_matches_wins_and_an_idle_rule_is_refused() {
        let tensors = [tensor("blk.0.a", &[64, 8]), tensor("blk.1.a", &[64, 8])];
        let rules = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Rule>>();
        let recipe = Recipe::new(Some(DType::Q4_0)).rules(rules(&["blk\\.1=f16", "blk=q8_0"]));
        assert_eq!(types(&recipe, &tensors), [DType::Q8_0, DType::F16]);
        let idle =
            Recipe::new(Some(DType::Q4_0)).rules(rules(&["blk.7=f16", "head=f32"])).choose(&tensors).unwrap_err();
        assert_eq!(idle.0, "rule \"blk.7=f16\" matches no tensor; rule \"head=f32\" matches no tensor");
    }

    #[test]
    fn rows_that_blocks_do_not_divide_stay_f16_or_are_refused() {
        let tensors = [tensor("odd", &[33, 8])];
        let choice = &Recipe::new(Some(DType::Q8_0)).choose(&tensors).unwrap()[0];
        assert_eq!(choice.dtype, DType::F16);
        assert_eq!(choice.note, "rows of 33 are not whole blocks of 32 for q8_0: kept as f16");
        assert!(Recipe::new(Some(DType::Q8_0)).strict(true).choose(&tensors).is_err());
    }

    #[test]
    fn rules_that_cannot_be_read_say_why() {
        for (text, reason) in [("abc", "REGEX=TYPE"), ("a=q9", "\"q9\" is not a type"), ("(=q8_0", "unclosed group")] {
            let error = text.parse::<Rule>().unwrap_err();
            assert!(error.0.contains(reason), "{text}: {error}");
        }
    }
}
