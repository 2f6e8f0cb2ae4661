//! The tiny models under `fixtures/`, with what other software computed from them.

use ndarray::Array2;
use safetensors::SafeTensors;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository has a root")
}

/// One checkpoint in a folder, with its goldens.
pub struct Fixture {
    /// The folder's name.
    pub name: String,
    /// The Hugging Face directory.
    pub folder: PathBuf,
    /// `golden.json`.
    pub golden: Value,
    pub(crate) goldens: Vec<u8>,
}

/// A prompt with what transformers made of it.
pub struct Prompt {
    /// The text.
    pub text: String,
    /// Its ids, with the special tokens that the tokenizer adds.
    pub ids: Vec<u32>,
    /// Ids of a decoder's text; nothing for models without an encoder before it.
    pub decoder_ids: Vec<u32>,
    /// What follows when the best token is taken every time; nothing for an encoder.
    pub greedy_ids: Vec<u32>,
}

/// A text that is hard for tokenizers, with what the tokenizers library made of it.
pub struct Text {
    /// The text.
    pub text: String,
    /// Its ids with special tokens added.
    pub ids: Vec<u32>,
    /// Its ids without.
    pub ids_no_special: Vec<u32>,
    /// `ids` as text, special tokens kept.
    pub decoded: String,
    /// `ids` as text, special tokens dropped.
    pub decoded_skip_special: String,
}

/// The models written by transformers, in the order of their names.
pub fn fixtures() -> Vec<Fixture> {
    let folder = root().join("fixtures/models");
    let entries = fs::read_dir(folder).expect("fixtures are in the repository");
    let mut fixtures: Vec<Fixture> =
        entries.map(|entry| Fixture::load(entry.expect("entries can be read").path())).collect();
    fixtures.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(fixtures.len() >= 11, "every architecture has a fixture");
    fixtures
}

/// A model of the most common kind, for tests that need any.
pub fn plain_fixture() -> Fixture {
    fixture("llama-linear")
}

/// Models for a short test: a common one, and one with ALiBi.
pub fn few_fixtures() -> Vec<Fixture> {
    vec![plain_fixture(), fixture("baichuan2-13b")]
}

/// One small model of each further kind: an encoder, an encoder-decoder, a mixture of experts, latent attention, a
/// state space and sliding windows.
pub fn fixtures_of_other_kinds() -> Vec<Fixture> {
    let first = |fixtures: Vec<Fixture>| fixtures.into_iter().next();
    let decoders = ["olmoe", "deepseek2", "mamba2", "gemma3"].map(|name| Some(fixture(name)));
    [first(encoders()), first(encoder_decoders())].into_iter().chain(decoders).flatten().collect()
}

/// Every model: decoders, the trained model, encoders and encoder-decoders.
pub fn all_fixtures() -> Vec<Fixture> {
    fixtures().into_iter().chain([stories()]).chain(encoders()).chain(encoder_decoders()).collect()
}

/// The model of that name.
pub fn fixture(name: &str) -> Fixture {
    Fixture::load(root().join("fixtures/models").join(name))
}

/// The encoders written by transformers, in the order of their names.
pub fn encoders() -> Vec<Fixture> {
    let folder = root().join("fixtures/encoders");
    let entries = fs::read_dir(folder).expect("fixtures are in the repository");
    let mut fixtures: Vec<Fixture> =
        entries.map(|entry| Fixture::load(entry.expect("entries can be read").path())).collect();
    fixtures.sort_by(|a, b| a.name.cmp(&b.name));
    fixtures
}

/// Encoder-decoder models.
pub fn encoder_decoders() -> Vec<Fixture> {
    ["t5", "flan-t5", "umt5"].map(|name| Fixture::load(root().join("fixtures/encoder-decoders").join(name))).into()
}

/// A model in a `.flm` file that FastLLM's programs wrote; only ids of its prompts and texts are known.
pub fn flm(name: &str) -> Fixture {
    Fixture::load(root().join("fixtures/flm").join(name))
}

/// The published models that `scripts/real_models.py` fetches, and the tests that need them.
pub const DOWNLOADED_MODELS: [(&str, &str); 3] = [
    ("all-minilm-l6-v2", "minilm_gives_the_vectors_of_transformers"),
    ("gemma-3-270m-q4_k_m", "gemma_3_270m_matches_llama_cpp"),
    ("smollm2-135m-instruct-q4_1", "smollm2_135m_matches_llama_cpp"),
];

/// The directory of one of `DOWNLOADED_MODELS`; `None` if it was not fetched.
pub fn downloaded_model(name: &str) -> Option<PathBuf> {
    assert!(DOWNLOADED_MODELS.iter().any(|(known, _)| *known == name), "{name} is not in the list");
    let folder = root().join("target/models").join(name);
    folder.join("golden.json").is_file().then_some(folder)
}

/// The small trained model in fixtures/stories-1M.
pub fn stories() -> Fixture {
    Fixture::load(root().join("fixtures/stories-1M"))
}

impl Fixture {
    /// The model of a folder that has goldens.
    pub fn load(folder: PathBuf) -> Fixture {
        let name = folder.file_name().expect("a directory has a name").to_string_lossy().into_owned();
        let json = fs::read(folder.join("golden.json")).unwrap_or_else(|error| panic!("{name}/golden.json: {error}"));
        let golden = serde_json::from_slice(&json).unwrap_or_else(|error| panic!("{name}/golden.json: {error}"));
        let goldens = fs::read(folder.join("golden.safetensors")).unwrap_or_else(|error| panic!("{name}: {error}"));
        Fixture { name, folder, golden, goldens }
    }

    /// Whether it is a decoder alone, without an encoder.
    pub fn is_decoder(&self) -> bool {
        let kind = self.folder.parent().and_then(Path::file_name);
        !kind.is_some_and(|kind| kind == "encoders" || kind == "encoder-decoders")
    }

    /// Prompts with ids and greedy continuation.
    pub fn prompts(&self) -> Vec<Prompt> {
        let prompts = self.golden["prompts"].as_array().expect("golden.json has prompts");
        // The trained model's golden keeps the prompt under "prompt" and the whole story under "text".
        let text = |prompt: &Value| string(prompt.get("prompt").unwrap_or(&prompt["text"]));
        let one = |prompt: &Value| Prompt {
            text: text(prompt),
            ids: ids(&prompt["ids"]),
            decoder_ids: prompt.get("decoder_ids").map(ids).unwrap_or_default(),
            greedy_ids: prompt.get("greedy_ids").map(ids).unwrap_or_default(),
        };
        prompts.iter().map(one).collect()
    }

    /// Texts that are hard for tokenizers.
    pub fn texts(&self) -> Vec<Text> {
        let texts = self.golden["texts"].as_array().expect("golden.json has texts");
        let one = |text: &Value| Text {
            text: string(&text["text"]),
            ids: ids(&text["ids"]),
            ids_no_special: ids(&text["ids_no_special"]),
            decoded: string(&text["decoded"]),
            decoded_skip_special: string(&text["decoded_skip_special"]),
        };
        texts.iter().map(one).collect()
    }

    /// Logits of one golden tensor, tokens x vocabulary.
    pub fn logits(&self, name: &str) -> Array2<f64> {
        golden_logits(&self.goldens, name)
    }

    /// Logits of the quantized model by the NumPy forward, for prompt `number`; `None` where there is no such golden.
    pub fn quantized_logits(&self, dtype: &str, number: usize) -> Option<Array2<f64>> {
        let path = root().join(format!("fixtures/quantized/{}.{dtype}.safetensors", self.name));
        let bytes = fs::read(path).ok()?;
        Some(golden_logits(&bytes, &format!("logits_{number}")))
    }
}

fn golden_logits(file: &[u8], name: &str) -> Array2<f64> {
    let file = SafeTensors::deserialize(file).expect("goldens are safetensors");
    let tensor = file.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(tensor.dtype(), safetensors::Dtype::F32, "goldens are stored as f32");
    let numbers = tensor.data().chunks_exact(4).map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
    let shape = (tensor.shape()[0], tensor.shape()[1]);
    Array2::from_shape_vec(shape, numbers.collect()).expect("the shape fits the data")
}

fn ids(value: &Value) -> Vec<u32> {
    let items = value.as_array().unwrap_or_else(|| panic!("expected ids, found {value}"));
    items.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()).expect("an id is a small number")).collect()
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("expected text, found {value}")).to_owned()
}
