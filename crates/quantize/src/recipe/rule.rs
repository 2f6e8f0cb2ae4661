//! Rules of the user: a pattern of tensor names, and a type.

use regex::Regex;
use trueup_blocks::DType;
use trueup_formats::{quote, regex_reason};

/// `REGEX=TYPE`: tensors whose name the pattern finds get the type. The first rule that matches wins.
///
/// Tensors that are never quantized keep their type, and no tensor gets a type larger than its source: a rule that asks
/// for it leaves a note.
#[derive(Clone, Debug)]
pub struct Rule {
    pub(super) pattern: Regex,
    pub(super) dtype: DType,
}

/// A rule that cannot be read, or rules and options that do not fit the tensors. A rule that cannot be read is not
/// repeated: the caller has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleError(pub String);

impl std::fmt::Display for RuleError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RuleError {}

impl Rule {
    /// Tensors whose name `pattern` finds get `dtype`.
    ///
    /// # Errors
    /// A pattern that is not a regular expression.
    pub fn new(pattern: &str, dtype: DType) -> Result<Rule, RuleError> {
        let pattern = Regex::new(pattern).map_err(|error| {
            let reason = regex_reason(&error.to_string());
            RuleError(format!("invalid regular expression before the last `=`: {reason}"))
        })?;
        Ok(Rule { pattern, dtype })
    }
}

impl std::str::FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Rule, RuleError> {
        let split = text.rsplit_once('=');
        let (pattern, name) =
            split.ok_or_else(|| RuleError("expected REGEX=TYPE, such as ffn_down=q8_0".to_owned()))?;
        let rule = Rule::new(pattern, DType::F32)?;
        let dtype = written_type(name).ok_or_else(|| {
            let types = written_types().map(DType::name).collect::<Vec<_>>().join(", ");
            RuleError(format!("expected one of the types {types} after the last =, found {}", quote(name)))
        })?;
        Ok(Rule { dtype, ..rule })
    }
}

/// Types of single tensors, the most used first.
const TYPES: [DType; 20] = [
    DType::F32,
    DType::F16,
    DType::Bf16,
    DType::Q8_0,
    DType::Q4_0,
    DType::Q5_0,
    DType::Q4_1,
    DType::Q5_1,
    DType::Q8_1,
    DType::Q2K,
    DType::Q3K,
    DType::Q4K,
    DType::Q5K,
    DType::Q6K,
    DType::Iq4Nl,
    DType::Iq4Xs,
    DType::Mxfp4,
    DType::Nvfp4,
    DType::Tq1_0,
    DType::Tq2_0,
];

/// The types that a single tensor can be written in, the most used first.
pub fn written_types() -> impl Iterator<Item = DType> {
    TYPES.into_iter().filter(|dtype| dtype.codec().is_some())
}

/// The type of this name, in any case, if a tensor can be written in it.
pub fn written_type(name: &str) -> Option<DType> {
    DType::from_name(name).filter(|dtype| written_types().any(|written| written == *dtype))
}
