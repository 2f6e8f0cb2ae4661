//! A recipe as a document, from which the same types can be chosen again.

use super::{Recipe, Rule, RuleError, Scheme, written_type};
use regex::RegexSetBuilder;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use trueup_blocks::DType;
use trueup_formats::{quote, regex_reason};

/// The settings of a [`Recipe`], named after command-line options.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecipeParameters {
    /// `--type`; `None` keeps the types of the source.
    #[serde(rename = "type")]
    pub scheme: Option<String>,
    /// `--pure`.
    pub pure: bool,
    /// `--strict`.
    pub strict: bool,
    /// `--token-embedding-type`.
    pub token_embedding_type: Option<String>,
    /// `--output-tensor-type`.
    pub output_tensor_type: Option<String>,
    /// `--leave-output-tensor`.
    pub leave_output_tensor: bool,
    /// `--rule`, in order: `REGEX=TYPE`.
    pub rules: Vec<String>,
    /// Types that were chosen for single tensors, as by `--target`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tensor_types: BTreeMap<String, String>,
}

/// Memory that the compiled patterns of a document may need, in bytes.
const PATTERN_BYTES_MAX: usize = 32 << 20;

impl Recipe {
    /// The settings of the recipe.
    pub fn parameters(&self) -> RecipeParameters {
        let name = |dtype: DType| dtype.name().to_owned();
        RecipeParameters {
            scheme: self.scheme.map(|scheme| scheme.name().to_owned()),
            pure: self.pure,
            strict: self.strict,
            token_embedding_type: self.token_embedding.map(name),
            output_tensor_type: self.output.map(name),
            leave_output_tensor: self.leave_output,
            rules: self.rules.iter().map(|rule| format!("{}={}", rule.pattern.as_str(), rule.dtype)).collect(),
            tensor_types: self.assigned.iter().map(|(tensor, dtype)| (tensor.clone(), name(*dtype))).collect(),
        }
    }

    /// The recipe with these settings.
    ///
    /// # Errors
    /// A type that does not exist or cannot be written, and rules that cannot be read or need too much memory.
    pub fn of_parameters(parameters: &RecipeParameters) -> Result<Recipe, RuleError> {
        let written = |name: &String| written_type(name).ok_or_else(|| unknown(name));
        let dtype = |name: &Option<String>| name.as_ref().map(written).transpose();
        let named = |name: &String| Scheme::from_name(name).filter(Scheme::is_written).ok_or_else(|| unknown(name));
        let assigned = |(tensor, name): (&String, &String)| match written(name) {
            Ok(dtype) => Ok((tensor.clone(), dtype)),
            Err(RuleError(problem)) => Err(RuleError(format!("tensor_types: {}: {problem}", quote(tensor)))),
        };
        Ok(Recipe::of(parameters.scheme.as_ref().map(named).transpose()?)
            .pure(parameters.pure)
            .strict(parameters.strict)
            .token_embedding(dtype(&parameters.token_embedding_type)?)
            .output(dtype(&parameters.output_tensor_type)?)
            .leave_output(parameters.leave_output_tensor)
            .rules(rules(&parameters.rules)?)
            .assigned(parameters.tensor_types.iter().map(assigned).collect::<Result<_, RuleError>>()?))
    }
}

/// The rules, if all patterns together need a bounded amount of memory.
fn rules(texts: &[String]) -> Result<Vec<Rule>, RuleError> {
    let patterns = texts.iter().filter_map(|text| Some(text.rsplit_once('=')?.0));
    let set = RegexSetBuilder::new(patterns).size_limit(PATTERN_BYTES_MAX).build();
    set.map_err(|error| {
        RuleError(format!("rules: expected valid regular expressions: {}", regex_reason(&error.to_string())))
    })?;
    let rule = |text: &String| {
        let rule = text.parse::<Rule>();
        rule.map_err(|error| RuleError(format!("rule {}: {error}", quote(text))))
    };
    texts.iter().map(rule).collect()
}

fn unknown(name: &str) -> RuleError {
    RuleError(format!("expected a type that trueup can write, found {}", quote(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_survives_the_document() {
        let rule = |text: &str| text.parse::<Rule>().unwrap();
        let recipe = Recipe::of(Scheme::from_name("q4_k_m"))
            .pure(true)
            .strict(true)
            .token_embedding(Some(DType::Q8_0))
            .output(Some(DType::Q6K))
            .rules(vec![rule("ffn_(up|down)=q5_k"), rule("a=b=f16")])
            .assigned(BTreeMap::from([("blk.0.ffn_up.weight".to_owned(), DType::Q3K)]));
        let text = serde_json::to_string(&recipe.parameters()).unwrap();
        let read: RecipeParameters = serde_json::from_str(&text).unwrap();
        assert_eq!(read, recipe.parameters());
        assert_eq!(Recipe::of_parameters(&read).unwrap().parameters(), read);
        assert_eq!(Recipe::of_parameters(&RecipeParameters::default()).unwrap().parameters().scheme, None);
    }

    #[test]
    fn settings_that_no_command_has_are_rejected() {
        let of = |change: fn(&mut RecipeParameters)| {
            let mut parameters = RecipeParameters::default();
            change(&mut parameters);
            Recipe::of_parameters(&parameters).unwrap_err().0
        };
        assert!(of(|it| it.scheme = Some("q9".to_owned())).contains("found q9"));
        assert!(of(|it| it.output_tensor_type = Some("iq1_s".to_owned())).contains("found iq1_s"));
        let no_type = of(|it| it.tensor_types = BTreeMap::from([("a".to_owned(), "q9".to_owned())]));
        assert!(no_type.contains("found q9"), "{no_type}");
        assert!(of(|it| it.rules = vec!["ffn".to_owned()]).contains("rule ffn: expected REGEX=TYPE"));
        assert!(of(|it| it.rules = vec!["(=q4_0".to_owned()]).contains("unclosed group"));
        let large = of(|it| it.rules = vec![r"\pL{900}{900}=q4_0".to_owned()]);
        assert!(large.contains("size limit") || large.contains("too large"), "{large}");
    }
}
