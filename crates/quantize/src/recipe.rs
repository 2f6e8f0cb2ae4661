//! Which tensor becomes what.

use regex::Regex;
use trueup_blocks::DType;
use trueup_formats::{TensorInfo, listed, quote, regex_reason};

/// The policy: a type for matrices, what is treated apart, and rules by name.
///
/// ```
/// use trueup_blocks::DType;
/// use trueup_formats::TensorInfo;
/// use trueup_quantize::{Recipe, Rule};
///
/// let matrices_of_layer_0: Rule = "^blk\\.0\\.(attn|ffn)_[a-z]+\\.weight$=q8_0".parse()?;
/// let recipe = Recipe::new(Some(DType::Q4_0)).rules(vec![matrices_of_layer_0]);
/// let tensor = |name, shape: &[u64]| TensorInfo::new(name, shape, DType::F32);
/// let tensors = [
///     tensor("blk.0.attn_q.weight", &[64, 64])?,
///     tensor("blk.0.attn_norm.weight", &[64])?,
///     tensor("blk.1.attn_q.weight", &[64, 64])?,
/// ];
/// let types: Vec<DType> = recipe.choose(&tensors)?.iter().map(|choice| choice.dtype).collect();
/// // The norm has one dimension: the pattern finds it too, but no rule quantizes it.
/// assert_eq!(types, [DType::Q8_0, DType::F32, DType::Q4_0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Recipe {
    dtype: Option<DType>,
    pure: bool,
    strict: bool,
    rules: Vec<Rule>,
}

/// `REGEX=TYPE`: tensors whose name the pattern finds get the type. The first rule that matches wins. Tensors of one
/// dimension are never quantized, and those that are no numbers of a model never changed: a rule that asks for it
/// leaves a note.
#[derive(Clone, Debug)]
pub struct Rule {
    pattern: Regex,
    dtype: DType,
}

/// A rule that cannot be read, or rules that do not fit the tensors. A rule that cannot be read is not repeated: the
/// caller has it.
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
        let split = text.rsplit_once('=');
        let (pattern, name) =
            split.ok_or_else(|| RuleError("expected REGEX=TYPE, such as ffn_down=q8_0".to_owned()))?;
        let pattern = Regex::new(pattern).map_err(|error| {
            let reason = regex_reason(&error.to_string());
            RuleError(format!("expected a regular expression before the last =, found an error: {reason}"))
        })?;
        let dtype = DType::from_name(name).filter(|dtype| WRITTEN_TYPES.contains(dtype)).ok_or_else(|| {
            let types = WRITTEN_TYPES.map(DType::name).join(", ");
            RuleError(format!("expected one of the types {types} after the last =, found {}", quote(name)))
        })?;
        Ok(Rule { pattern, dtype })
    }
}

/// The types that tensors can be written in, the most used first.
pub const WRITTEN_TYPES: [DType; 9] =
    [DType::F32, DType::F16, DType::Bf16, DType::Q8_0, DType::Q4_0, DType::Q5_0, DType::Q4_1, DType::Q5_1, DType::Q8_1];

impl Recipe {
    /// Matrices become `dtype`, the embedding and the output head q8_0 when it is a 4-bit type; one-dimensional tensors
    /// and routers of experts f32. `None` leaves every tensor as it is.
    pub fn new(dtype: Option<DType>) -> Recipe {
        Recipe { dtype, pure: false, strict: false, rules: Vec::new() }
    }

    /// The embedding and the output head get the type too.
    #[must_use]
    pub fn pure(mut self, pure: bool) -> Recipe {
        self.pure = pure;
        self
    }

    /// A tensor that cannot get the type asked for is an error instead of a note: a matrix whose rows the blocks do not
    /// divide (else f16), a tensor of one dimension under a rule with a quantized type (else f32).
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

    /// Whether it says nothing beside a type.
    pub fn is_plain(&self) -> bool {
        !self.pure && !self.strict && self.rules.is_empty()
    }

    /// The type of most matrices, when one was asked for.
    pub fn dtype(&self) -> Option<DType> {
        self.dtype
    }

    /// One choice per tensor, in their order. Fails when a rule finds no tensor, or, when strict, on tensors that
    /// cannot get their type; lists all faults.
    pub fn choose(&self, tensors: &[TensorInfo]) -> Result<Vec<Choice>, RuleError> {
        let idle = self.rules.iter().filter(|rule| !tensors.iter().any(|tensor| rule.pattern.is_match(&tensor.name)));
        let mut faults: Vec<String> =
            idle.map(|rule| format!("--rule {}={}: no tensor name matches", rule.pattern, rule.dtype)).collect();
        let choices: Vec<Choice> = tensors.iter().map(|tensor| self.choose_one(tensor)).collect();
        if self.strict {
            let kept = tensors.iter().zip(&choices).filter(|(_, choice)| !choice.note.is_empty());
            faults.extend(kept.map(|(tensor, choice)| format!("{}: {}", quote(&tensor.name), choice.note)));
        }
        if faults.is_empty() { Ok(choices) } else { Err(RuleError(listed(&faults, "; "))) }
    }

    fn choose_one(&self, tensor: &TensorInfo) -> Choice {
        let rule = self.rules.iter().find(|rule| rule.pattern.is_match(&tensor.name));
        let plain = |dtype| Choice { dtype, note: String::new() };
        match rule {
            _ if !is_number(tensor) => {
                let wanted = rule.map(|rule| rule.dtype).filter(|wanted| *wanted != tensor.dtype);
                let note = wanted.map_or_else(String::new, |wanted| {
                    format!("kept as {}, which is not a type of weights, instead of {wanted}", tensor.dtype)
                });
                Choice { dtype: tensor.dtype, note }
            }
            Some(Rule { dtype, .. }) if dtype.is_quantized() && !is_matrix(tensor) => Choice {
                dtype: DType::F32,
                note: format!("kept as f32 instead of {dtype}: tensors with one dimension are not quantized"),
            },
            Some(rule) => whole_rows(tensor, rule.dtype),
            None => match self.dtype {
                None => plain(tensor.dtype),
                Some(_) if !is_matrix(tensor) || stays_f32(&tensor.name) => plain(DType::F32),
                Some(DType::Q4_0 | DType::Q4_1) if is_end(tensor) && !self.pure => whole_rows(tensor, DType::Q8_0),
                Some(dtype) => whole_rows(tensor, dtype),
            },
        }
    }
}

/// The type, or f16 where its blocks do not divide the rows.
fn whole_rows(tensor: &TensorInfo, dtype: DType) -> Choice {
    let columns = tensor.shape.first().copied().unwrap_or(1);
    if dtype.row_bytes(columns).is_some() {
        return Choice { dtype, note: String::new() };
    }
    let note = format!(
        "kept as f16: the row length {columns} is not a multiple of {}, the block size of {dtype}",
        dtype.block_len()
    );
    Choice { dtype: DType::F16, note }
}

fn is_number(tensor: &TensorInfo) -> bool {
    tensor.dtype.is_float() || tensor.dtype.is_quantized()
}

fn is_matrix(tensor: &TensorInfo) -> bool {
    !is_state_table(&tensor.name) && tensor.shape.iter().filter(|size| **size != 1).count() > 1
}

/// Whether this is a small table of a scan or a convolution.
fn is_state_table(name: &str) -> bool {
    [".ssm_a", ".ssm_d", ".ssm_conv1d.weight"].iter().any(|end| name.ends_with(end))
}

/// Whether a tensor of this name is f32 in every file. Small errors of a matrix that chooses experts or weighs them
/// change choices. llama.cpp reads the tables of scans, convolutions and token types as f32, and keeps those of
/// distances in it.
pub fn stays_f32(name: &str) -> bool {
    let is_router = name.ends_with(".ffn_gate_inp.weight") || name.ends_with(".ffn_gate_inp_shexp.weight");
    is_router || is_state_table(name) || name == "token_types.weight" || name.ends_with(".attn_rel_b.weight")
}

/// The embedding and the output head.
fn is_end(tensor: &TensorInfo) -> bool {
    ["token_embd.weight", "output.weight"].contains(&tensor.name.as_str())
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
    fn tables_that_programs_read_as_f32_stay_f32() {
        let names = [
            "blk.0.ffn_gate_inp.weight",
            "blk.0.ffn_gate_inp_shexp.weight",
            "blk.0.ssm_a",
            "blk.0.ssm_d",
            "blk.0.ssm_conv1d.weight",
            "token_types.weight",
            "enc.blk.0.attn_rel_b.weight",
        ];
        for dtype in [DType::F16, DType::Q8_0, DType::Q4_0] {
            let tensors = names.map(|name| tensor(name, &[64, 8]));
            assert_eq!(types(&Recipe::new(Some(dtype)), &tensors), [DType::F32; 7]);
            let others = [tensor("blk.0.ffn_gate.weight", &[64, 8]), tensor("blk.0.attn_rel.weight", &[64, 8])];
            assert_eq!(types(&Recipe::new(Some(dtype)), &others), [dtype; 2]);
        }
    }

    #[test]
    fn the_first_rule_that_matches_wins_and_an_idle_rule_is_refused() {
        let tensors = [tensor("blk.0.a", &[64, 8]), tensor("blk.1.a", &[64, 8])];
        let rules = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Rule>>();
        let recipe = Recipe::new(Some(DType::Q4_0)).rules(rules(&["blk\\.1=f16", "blk=q8_0"]));
        assert_eq!(types(&recipe, &tensors), [DType::Q8_0, DType::F16]);
        let idle =
            Recipe::new(Some(DType::Q4_0)).rules(rules(&["blk.7=f16", "head=f32"])).choose(&tensors).unwrap_err();
        assert_eq!(idle.0, "--rule blk.7=f16: no tensor name matches; --rule head=f32: no tensor name matches");
    }

    #[test]
    fn rows_that_blocks_do_not_divide_stay_f16_or_are_refused() {
        let tensors = [tensor("odd", &[33, 8])];
        let choice = &Recipe::new(Some(DType::Q8_0)).choose(&tensors).unwrap()[0];
        assert_eq!(choice.dtype, DType::F16);
        assert_eq!(choice.note, "kept as f16: the row length 33 is not a multiple of 32, the block size of q8_0");
        assert!(Recipe::new(Some(DType::Q8_0)).strict(true).choose(&tensors).is_err());
    }

    #[test]
    fn no_rule_quantizes_one_dimension_or_changes_integers() {
        let mut tensors = [tensor("blk.0.m", &[64, 8]), tensor("blk.0.n", &[64]), tensor("blk.0.one", &[64, 1])];
        let table = TensorInfo { dtype: DType::I32, ..tensor("blk.0.table", &[64, 8]) };
        let with = |dtype: Option<DType>, rule: &str| Recipe::new(dtype).rules(vec![rule.parse().unwrap()]);
        for dtype in [None, Some(DType::Q4_0)] {
            tensors[1].dtype = DType::F16;
            let all = [tensors.as_slice(), std::slice::from_ref(&table)].concat();
            let recipe = with(dtype, "blk=q8_0");
            assert_eq!(types(&recipe, &all), [DType::Q8_0, DType::F32, DType::F32, DType::I32]);
            let notes: Vec<String> = recipe.choose(&all).unwrap().into_iter().map(|choice| choice.note).collect();
            let one = "kept as f32 instead of q8_0: tensors with one dimension are not quantized";
            assert_eq!(notes, ["", one, one, "kept as i32, which is not a type of weights, instead of q8_0"]);
            let refused = recipe.strict(true).choose(&all).unwrap_err().0;
            assert!(
                refused.contains(&format!("blk.0.n: {one}")) && refused.contains("blk.0.table: kept as i32"),
                "{refused}"
            );
            // A plain type is what the rule says.
            assert_eq!(types(&with(dtype, "blk=bf16"), &tensors), [DType::Bf16; 3]);
        }
    }

    #[test]
    fn rules_that_cannot_be_read_say_why() {
        for (text, reason) in [
            ("abc", "expected REGEX=TYPE, such as ffn_down=q8_0"),
            (
                "a=q9",
                "expected one of the types f32, f16, bf16, q8_0, q4_0, q5_0, q4_1, q5_1, q8_1 after the last =, found q9",
            ),
            (
                "ab(c=q8_0",
                "expected a regular expression before the last =, found an error: unclosed group at character 3",
            ),
            ("a\n(=q8_0", "expected a regular expression before the last =, found an error: unclosed group"),
        ] {
            assert_eq!(text.parse::<Rule>().unwrap_err().0, reason);
        }
    }

    #[test]
    fn every_type_with_a_codec_is_listed() {
        let with_codec: Vec<DType> =
            DType::all().filter(|dtype| dtype.codec().is_some() && *dtype != DType::F64).collect();
        assert!(with_codec.iter().all(|dtype| WRITTEN_TYPES.contains(dtype)));
        assert_eq!(with_codec.len(), WRITTEN_TYPES.len());
    }
}
