//! Arguments that `quantize` and `convert` share: types of single tensors, and the importance matrix.

use crate::failure::raised;
use pyo3::prelude::*;
use std::path::PathBuf;
use trueup::blocks::DType;
use trueup::formats::{self, Importance};
use trueup::quantize::{ImportanceOptions, Recipe, Rule, Scheme, written_type, written_types};

/// Types of single tensors.
pub struct RecipeArguments<'a> {
    pub rules: Option<Vec<String>>,
    pub pure: bool,
    pub strict: bool,
    pub token_embedding_type: Option<&'a str>,
    pub output_tensor_type: Option<&'a str>,
    pub leave_output_tensor: bool,
}

impl RecipeArguments<'_> {
    /// The recipe for a scheme; without one, tensors keep their types.
    pub fn recipe(self, scheme: Option<Scheme>) -> PyResult<Recipe> {
        if self.leave_output_tensor && self.output_tensor_type.is_some() {
            return Err(raised("leave_output_tensor and output_tensor_type were both given: pass only one of them"));
        }
        let rule = |text: &String| {
            text.parse::<Rule>().map_err(|error| raised(format!("rules: {}: {error}", formats::quote(text))))
        };
        let rules = self.rules.unwrap_or_default().iter().map(rule).collect::<PyResult<Vec<Rule>>>()?;
        Ok(Recipe::of(scheme)
            .pure(self.pure)
            .strict(self.strict)
            .token_embedding(dtype("token_embedding_type", self.token_embedding_type)?)
            .output(dtype("output_tensor_type", self.output_tensor_type)?)
            .leave_output(self.leave_output_tensor)
            .rules(rules))
    }
}

fn dtype(argument: &str, name: Option<&str>) -> PyResult<Option<DType>> {
    let Some(name) = name else { return Ok(None) };
    written_type(name).map(Some).ok_or_else(|| {
        let names: Vec<&str> = written_types().map(DType::name).collect();
        raised(format!("{argument}: expected one of {}, found {name:?}", names.join(", ")))
    })
}

/// An importance matrix, and how it is used.
pub struct ImportanceArguments {
    pub imatrix: Option<PathBuf>,
    pub allow_partial: bool,
    pub exact: bool,
}

impl ImportanceArguments {
    /// Reads the importance matrix, if one is given.
    pub fn open(&self) -> formats::Result<Option<ImportanceOptions>> {
        let Some(path) = &self.imatrix else { return Ok(None) };
        let (allow_partial, exact) = (self.allow_partial, self.exact);
        Ok(Some(ImportanceOptions { file: Importance::open(path)?, allow_partial, exact }))
    }

    /// Refuses options of an importance matrix without one.
    pub fn check(&self) -> PyResult<()> {
        let flags = [("allow_partial_imatrix", self.allow_partial), ("imatrix_exact", self.exact)];
        match flags.into_iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) if self.imatrix.is_none() => Err(raised(format!("{flag}: pass imatrix too"))),
            _ => Ok(()),
        }
    }
}
