//! A model on a device, for programs that embed trueup.

use ndarray::Array2;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use trueup_runtime::{
    DeviceOptions, Error, GenerateOptions, KeptLogits, ModelFile, Result, Session, SessionOptions, Watch, Weights,
    generate, generate_watched, open_devices, open_fallback,
};
use trueup_tokenizer::DecodeStream;

/// An open model whose weights are on a device. Clones are cheap, and calls on clones run concurrently.
///
/// ```
/// use std::ops::ControlFlow;
/// use trueup::Model;
/// use trueup::convert::{Options, convert};
/// use trueup::formats::{self, OpenOptions};
/// use trueup::quantize::NoProgress;
/// use trueup::runtime::{DeviceOptions, GenerateOptions, Sampling};
///
/// # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/stories-1M");
/// # let scratch = tempfile::tempdir()?;
/// # let file = scratch.path().join("stories.gguf");
/// let source = formats::open(folder, &OpenOptions::default())?;
/// convert(source.as_ref(), &file, &Options::default(), &NoProgress)?;
///
/// let model = Model::open(&file, "cpu", &DeviceOptions::default())?;
/// let options = GenerateOptions { tokens_max: Some(6), sampling: Sampling::GREEDY, ..GenerateOptions::default() };
/// let mut heard = Vec::new();
/// let text = model.generate("Once upon a time", &options, &mut |piece| {
///     print!("{piece}");
///     heard.push(piece.to_owned());
///     if heard.len() < 100 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
/// })?;
/// assert_eq!(text, ", there was a little fox");
/// assert_eq!(heard.concat(), text);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Model {
    weights: Arc<Weights>,
    session: SessionOptions,
}

impl Model {
    /// Opens a GGUF file on a device (`ref`, `cpu`, `cuda`, `npu`, `cuda-sim`, `npu-sim`), or on several devices, such
    /// as `cuda:0,cuda:1`.
    pub fn open(path: impl AsRef<Path>, device: &str, options: &DeviceOptions) -> Result<Model> {
        let file = Arc::new(ModelFile::open(path)?);
        let (devices, fallback) = (open_devices(device, &[], options)?, open_fallback(device, options)?);
        let weights = Arc::new(Weights::over(file, devices, fallback));
        Ok(Model { weights, session: SessionOptions::default() })
    }

    /// Sets the session options of all calls, such as the context length and the type of the KV cache.
    #[must_use]
    pub fn with_session(self, session: SessionOptions) -> Model {
        Model { session, ..self }
    }

    /// The file: metadata, tensors, tokenizer.
    pub fn file(&self) -> &Arc<ModelFile> {
        self.weights.model()
    }

    /// Generates the text that follows a prompt, or that a decoder writes after an encoder has read the prompt.
    /// `on_text` is called for each token with the characters that the token completes, which may be none, and can end
    /// the text.
    pub fn generate(
        &self,
        prompt: &str,
        options: &GenerateOptions,
        on_text: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<String> {
        self.generate_unless(prompt, options, &mut || false, on_text)
    }

    /// Like [`Model::generate`], but stops when `is_cancelled` returns true. It is called before each part of the
    /// prompt and before each token. Returns the text up to that point.
    pub fn generate_unless(
        &self,
        prompt: &str,
        options: &GenerateOptions,
        is_cancelled: &mut dyn FnMut() -> bool,
        on_text: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<String> {
        let tokenizer = self.file().tokenizer()?;
        let ids = tokenizer.encode(prompt, true)?;
        // A decoder writes a new text.
        let stream = tokenizer.stream(true, self.file().model().spec().has_encoder());
        let mut reader = Reader { stream, text: String::new(), stopped: false, is_cancelled, on_text };
        generate_watched(&mut self.session()?, &[ids], options, &mut reader)?;
        if !reader.stopped {
            let rest = reader.stream.finish();
            reader.text.push_str(&rest);
            // Nothing is left to end.
            let _ = (reader.on_text)(&rest);
        }
        Ok(reader.text)
    }

    /// The logits after each token, of shape `(tokens, vocabulary)`. In an encoder-decoder model, the encoder reads the
    /// tokens, and the one row has the logits after the decoder's start token.
    pub fn logits(&self, ids: &[u32]) -> Result<Array2<f32>> {
        let options = GenerateOptions { tokens_max: Some(0), keep_logits: true, ..GenerateOptions::default() };
        let generated =
            generate(&mut self.session()?, &[ids.to_vec()], &options, &mut |_, _| ControlFlow::Continue(()))?;
        let kept: Option<KeptLogits> = generated.into_iter().next().and_then(|generated| generated.logits);
        let kept = kept.ok_or_else(|| Error::Request("no logits were computed".to_owned()))?;
        let shape = (kept.prompt.len().checked_div(kept.vocabulary).unwrap_or(0), kept.vocabulary);
        Array2::from_shape_vec(shape, kept.prompt).map_err(|error| Error::Request(format!("logits: {error}")))
    }

    /// The vectors of an encoder for a text: one row for the text if the model pools the rows of its tokens, else one
    /// row for each token.
    ///
    /// # Errors
    /// The model is not an encoder, or the text is longer than its context.
    pub fn embed(&self, ids: &[u32]) -> Result<Array2<f32>> {
        if self.file().model().spec().has_logits() {
            let problem = "expected an encoder, found a model that generates text; use `logits` instead";
            return Err(Error::Request(problem.to_owned()));
        }
        let rows = self.session()?.compute_text(ids)?;
        Array2::from_shape_vec((rows.rows(), rows.width()), rows.to_f32())
            .map_err(|error| Error::Request(format!("embed: {error}")))
    }

    pub(crate) fn weights(&self) -> &Arc<Weights> {
        &self.weights
    }

    fn session(&self) -> Result<Session> {
        Session::new(self.weights.clone(), &self.session)
    }
}

/// Someone who reads one text as it comes.
struct Reader<'a> {
    stream: DecodeStream<'a>,
    text: String,
    stopped: bool,
    is_cancelled: &'a mut dyn FnMut() -> bool,
    on_text: &'a mut dyn FnMut(&str) -> ControlFlow<()>,
}

impl Watch for Reader<'_> {
    fn is_cancelled(&mut self, _prompt: usize) -> bool {
        self.stopped |= (self.is_cancelled)();
        self.stopped
    }

    fn saw_token(&mut self, _prompt: usize, id: u32) -> ControlFlow<()> {
        let piece = self.stream.push(id);
        self.text.push_str(&piece);
        let flow = (self.on_text)(&piece);
        self.stopped |= flow.is_break();
        flow
    }
}
