//! The way of a model through the library: convert, quantize, generate.

use ndarray::Array2;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trueup::blocks::DType;
use trueup::convert::{self, TensorCheck};
use trueup::formats::{self, Gguf, OpenOptions};
use trueup::quantize::{self, Layout, NoProgress, Recipe};
use trueup::runtime::{
    DeviceOptions, GenerateOptions, ModelFile, Sampling, Session, SessionOptions, Weights, generate, open_device,
};

/// Converts a checkpoint to `target` and compares the written file with it. `None` keeps the types.
pub fn convert(source: &Path, target: &Path, dtype: Option<DType>, tokenizer: Option<PathBuf>) -> Vec<TensorCheck> {
    let source = formats::open(source, &OpenOptions { tokenizer }).unwrap_or_else(|error| panic!("{error}"));
    let options = convert::Options { recipe: Recipe::new(dtype), ..convert::Options::default() };
    let report =
        convert::convert(source.as_ref(), target, &options, &NoProgress).unwrap_or_else(|error| panic!("{error}"));
    let written = Gguf::open(&report.files[0]).unwrap_or_else(|error| panic!("{error}"));
    convert::check(source.as_ref(), &written, None).unwrap_or_else(|error| panic!("{error}"))
}

/// Quantizes a GGUF file.
pub fn quantize(source: &Path, target: &Path, dtype: DType, layout: Layout) {
    let source = formats::open(source, &OpenOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let source = formats::join_split_scale(source).unwrap_or_else(|error| panic!("{error}"));
    let recipe = Recipe::new(Some(dtype));
    let options = quantize::Options { recipe, layout, threads: None, dry_run: false, resume: false };
    quantize::quantize(source.as_ref(), target, &options, &NoProgress).unwrap_or_else(|error| panic!("{error}"));
}

/// What a model says after a prompt.
pub struct Said {
    /// The ids.
    pub ids: Vec<u32>,
    /// Logits after each token of the prompt: tokens x vocabulary.
    pub prompt_logits: Array2<f64>,
}

/// Generates greedily after each prompt, all in one batch.
pub fn say(model: &Path, device: &str, prompts: &[Vec<u32>], tokens: usize, ignore_eos: bool) -> Vec<Said> {
    say_with_cache(model, device, prompts, (tokens, ignore_eos), None)
}

/// Reads the prompts with a KV cache in f32. It does not round keys and values. Models without a KV cache have none.
pub fn say_exact(model: &Path, device: &str, prompts: &[Vec<u32>]) -> Vec<Said> {
    say_with_cache(model, device, prompts, (0, true), Some(DType::F32))
}

fn say_with_cache(
    model: &Path,
    device: &str,
    prompts: &[Vec<u32>],
    (tokens, ignore_eos): (usize, bool),
    kv: Option<DType>,
) -> Vec<Said> {
    let model = Arc::new(ModelFile::open(model).unwrap_or_else(|error| panic!("{error}")));
    let kv = kv.filter(|_| model.model().spec().has_kv_cache());
    let device = open_device(device, &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let weights = Arc::new(Weights::new(model, device, None));
    let options = SessionOptions { sequences: prompts.len(), kv, ..SessionOptions::default() };
    let mut session = Session::new(weights, &options).unwrap_or_else(|error| panic!("{error}"));
    let options = GenerateOptions {
        tokens_max: Some(tokens),
        ignore_eos,
        sampling: Sampling::GREEDY,
        keep_logits: true,
        ..GenerateOptions::default()
    };
    let results = generate(&mut session, prompts, &options, &mut |_, _| ControlFlow::Continue(()));
    let results = results.unwrap_or_else(|error| panic!("{error}"));
    let one = |(result, prompt): (trueup::runtime::Generated, &Vec<u32>)| {
        let kept = result.logits.expect("logits were asked for");
        let values = kept.prompt.iter().map(|logit| f64::from(*logit)).collect();
        let prompt_logits = Array2::from_shape_vec((prompt.len(), kept.vocabulary), values).expect("one row per token");
        Said { ids: result.ids, prompt_logits }
    };
    results.into_iter().zip(prompts).map(one).collect()
}
