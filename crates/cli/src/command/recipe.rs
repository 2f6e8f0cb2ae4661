//! Options that choose the types of tensors: shared by `quantize` and `convert`.

use crate::failure::Result;
use crate::value;
use clap::Args;
use std::path::PathBuf;
use trueup::blocks::DType;
use trueup::formats::Importance;
use trueup::quantize::{ImportanceOptions, Recipe, Rule, Scheme};

/// Options for single tensors.
#[derive(Args)]
pub struct RecipeArguments {
    /// Set the type of tensors whose names match the regular expression REGEX; the first matching rule applies
    ///
    /// Other tensors keep the types that they would have without the rule. A rule that matches no tensor is an error.
    #[arg(long = "rule", alias = "tensor-type", value_name = "REGEX=TYPE")]
    rules: Vec<Rule>,
    /// Use the type given with --type for every matrix, including the embedding and the output head
    #[arg(long)]
    pure: bool,
    /// Type of the token embedding
    #[arg(long, value_name = "TYPE", value_parser = value::tensor_type)]
    token_embedding_type: Option<DType>,
    /// Type of the output head, or of the token embedding if the model has no separate output head
    #[arg(long, value_name = "TYPE", value_parser = value::tensor_type)]
    output_tensor_type: Option<DType>,
    /// Keep the type of the output head
    #[arg(long, conflicts_with = "output_tensor_type")]
    leave_output_tensor: bool,
    /// Fail if a tensor cannot get the requested type, for example because of its row length
    #[arg(long)]
    strict: bool,
}

impl RecipeArguments {
    /// The recipe for a scheme; without one, tensors keep their types.
    pub fn recipe(&self, scheme: Option<Scheme>) -> Recipe {
        Recipe::of(scheme)
            .pure(self.pure)
            .strict(self.strict)
            .token_embedding(self.token_embedding_type)
            .output(self.output_tensor_type)
            .leave_output(self.leave_output_tensor)
            .rules(self.rules.clone())
    }
}

/// The importance matrix.
#[derive(Args)]
pub struct ImportanceArguments {
    /// Importance matrix from `trueup imatrix` or llama-imatrix, used to weight quantization errors
    #[arg(long, value_name = "FILE")]
    pub imatrix: Option<PathBuf>,
    /// Accept missing entries, entries of the wrong size, and experts without tokens in the importance matrix
    #[arg(long, requires = "imatrix")]
    allow_partial_imatrix: bool,
    /// Match llama-quantize byte for byte, even for columns without importance and for weights stored without loss
    #[arg(long, requires = "imatrix")]
    imatrix_exact: bool,
}

impl ImportanceArguments {
    /// Reads the importance matrix, if one is given.
    pub fn open(&self) -> Result<Option<ImportanceOptions>> {
        let file = self.imatrix.as_deref().map(Importance::open).transpose()?;
        let (allow_partial, exact) = (self.allow_partial_imatrix, self.imatrix_exact);
        Ok(file.map(|file| ImportanceOptions { file, allow_partial, exact }))
    }
}
