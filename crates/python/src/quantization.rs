//! `trueup.quantize`: converts the tensors of a model file to smaller types.

use crate::conversion::scheme;
use crate::failure::raised;
use crate::recipe::{ImportanceArguments, RecipeArguments};
use crate::report;
use pyo3::prelude::*;
use std::path::{Path, PathBuf};
use trueup::attestation::Attestation;
use trueup::blocks::DType;
use trueup::convert::{FlmOptions, to_flm};
use trueup::formats::flm::is_flm;
use trueup::formats::{self, AtomicFile, OpenOptions, SourceFile};
use trueup::quantize::{Layout, NoProgress, Options, Report, quantize_with};

/// Quantize a GGUF file, or write a FastLLM file if the output name ends in ".flm" (pass bits in that case).
///
/// source: the GGUF file to read. For a .flm output, any model.
/// output: the file to write. It is either complete or not created.
/// type: the type of matrices, such as "q4_0", or a recipe, such as "q4_k_m". None keeps every type and
///     changes only the layout.
/// layout: "block" is the GGUF layout; "split" stores values and scales as two tensors.
/// pure: use the given type for every matrix, also for the embedding and the output head.
/// resume: keep finished tensors if the run is interrupted, and reuse those of an earlier interrupted run.
/// bits: bits per weight instead of a type: 4 is q4_0, 8 is q8_0, 16 is f16.
/// threads: number of threads. None uses one per core.
/// rules: types of single tensors, such as ["ffn_down=q6_k"]: a regular expression and a type. The first rule that
///     matches a name applies.
/// imatrix: path of an importance matrix, in GGUF or in the older .dat format.
/// allow_partial_imatrix: accept missing entries, entries of the wrong size, and experts without tokens.
/// imatrix_exact: write the bytes of llama-quantize also for columns without importance and for weights on a grid.
/// token_embedding_type, output_tensor_type: the types of the token embedding and of the output head.
/// leave_output_tensor: keep the type of the output head.
/// strict: fail if a tensor cannot get the requested type.
/// attest: path of an attestation to write. `trueup reproduce` checks it by repeating the run.
///
/// Returns the new type and the quantization error of each tensor. Raises TrueupError.
#[pyfunction]
#[pyo3(signature = (
    source, output, r#type=None, layout="block", pure=false, resume=false, bits=None, threads=None, rules=None,
    imatrix=None, allow_partial_imatrix=false, imatrix_exact=false, token_embedding_type=None, output_tensor_type=None,
    leave_output_tensor=false, strict=false, attest=None
))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments in Python")]
pub fn quantize<'py>(
    py: Python<'py>,
    source: PathBuf,
    output: PathBuf,
    r#type: Option<&str>,
    layout: &str,
    pure: bool,
    resume: bool,
    bits: Option<u32>,
    threads: Option<usize>,
    rules: Option<Vec<String>>,
    imatrix: Option<PathBuf>,
    allow_partial_imatrix: bool,
    imatrix_exact: bool,
    token_embedding_type: Option<&str>,
    output_tensor_type: Option<&str>,
    leave_output_tensor: bool,
    strict: bool,
    attest: Option<PathBuf>,
) -> PyResult<Bound<'py, PyAny>> {
    let scheme = match (r#type, bits) {
        (None, None) => None,
        (Some(name), None) => Some(scheme(name)?),
        (None, Some(4)) => Some(DType::Q4_0.into()),
        (None, Some(8)) => Some(DType::Q8_0.into()),
        (None, Some(16)) => Some(DType::F16.into()),
        (None, Some(bits)) => return Err(raised(format!("bits: expected 4, 8 or 16, found {bits}"))),
        (Some(_), Some(_)) => return Err(raised("type and bits were both given: pass only one of them")),
    };
    let tensors =
        RecipeArguments { rules, pure, strict, token_embedding_type, output_tensor_type, leave_output_tensor };
    let importance = ImportanceArguments { imatrix, allow_partial: allow_partial_imatrix, exact: imatrix_exact };
    importance.check()?;
    let recipe = tensors.recipe(scheme)?;
    let options = Options { recipe, layout: layout_of(layout)?, threads, dry_run: false, resume };
    let run = Run { source: &source, output: &output, bits, options, importance, attest };
    let report = py.detach(|| run.report()).map_err(raised)?;
    report::to_python(py, &report)
}

/// One call.
struct Run<'a> {
    source: &'a Path,
    output: &'a Path,
    bits: Option<u32>,
    options: Options,
    importance: ImportanceArguments,
    attest: Option<PathBuf>,
}

impl Run<'_> {
    fn report(&self) -> formats::Result<Report> {
        let source = formats::join_split_scale(formats::open(self.source, &OpenOptions::default())?)?;
        let importance = self.importance.open()?;
        if is_flm(self.output) {
            let arguments = [("imatrix", importance.is_some()), ("attest", self.attest.is_some())];
            if let Some((argument, _)) = arguments.into_iter().find(|(_, is_given)| *is_given) {
                let problem = format!("{argument}: expected GGUF output, found .flm output");
                return Err(formats::Error::new(self.output, problem).help("remove the argument"));
            }
            let options = FlmOptions::of_quantization(self.output, self.bits, &self.options)?;
            return to_flm(source.as_ref(), self.output, &options, &NoProgress);
        }
        self.options.recipe.expect_effect(self.source, importance.is_some())?;
        let report = quantize_with(source.as_ref(), self.output, &self.options, importance.as_ref(), &NoProgress)?;
        if let Some(file) = &self.attest {
            let written = (self.output, &report);
            let statement =
                Attestation::new(source.as_ref(), importance.as_ref(), &self.options, written, &NoProgress)?;
            let output = SourceFile::open(self.output)?;
            let inputs = source.sources().into_iter().chain(importance.as_ref().map(|matrix| matrix.file.source()));
            let mut document = AtomicFile::create(file, &inputs.chain([&output]).collect::<Vec<_>>())?;
            document.write_all(statement.to_document()?.as_bytes())?;
            document.commit()?;
        }
        Ok(report)
    }
}

fn layout_of(name: &str) -> PyResult<Layout> {
    match name {
        "block" => Ok(Layout::Block),
        "split" => Ok(Layout::Split),
        other => Err(raised(format!("layout: expected \"block\" or \"split\", found {other:?}"))),
    }
}
