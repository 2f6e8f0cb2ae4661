//! Times candle on a GGUF file, as `scripts/compare_peers.py` asks for it.
//!
//!     candle_peer FILE.gguf PROMPT GENERATE
//!
//! Prints one line of JSON: seconds from loading until the logits behind one token are there, seconds of a prompt and
//! of the tokens behind it, one by one, and the largest resident memory of all that. No prompt is computed before the
//! one that counts. RAYON_NUM_THREADS, which candle reads, says how many threads it uses.
use std::time::Instant;

use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Error, Result, Tensor};
use candle_transformers::models::quantized_llama::ModelWeights;

struct Model {
    weights: ModelWeights,
    vocabulary: u64,
}

impl Model {
    fn open(path: &str) -> Result<Model> {
        let mut file = std::fs::File::open(path)?;
        let content = Content::read(&mut file)?;
        let embedding = content.tensor_infos.get("token_embd.weight");
        let embedding = embedding.ok_or_else(|| Error::Msg(format!("{path} has no token_embd.weight")))?;
        let vocabulary = embedding.shape.dims()[0] as u64;
        let weights = ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?;
        Ok(Model { weights, vocabulary })
    }

    /// The ids that `trueup bench` computes.
    fn ids(&self, count: u64) -> Vec<u32> {
        let hash = |place: u64| place.wrapping_mul(2_654_435_761) & 0xFFFF_FFFF;
        (1..=count).map(|place| ((hash(place) * self.vocabulary) >> 32) as u32).collect()
    }

    /// Seconds until the logits behind `ids`, which begin at `position`, are there.
    fn compute(&mut self, ids: &[u32], position: usize) -> Result<f64> {
        let start = Instant::now();
        let ids = Tensor::new(ids, &Device::Cpu)?.unsqueeze(0)?;
        self.weights.forward(&ids, position)?.flatten_all()?.to_vec1::<f32>()?;
        Ok(start.elapsed().as_secs_f64())
    }
}

/// The largest resident memory of this process so far; 0 where the system does not say.
fn peak_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn main() -> Result<()> {
    let start = Instant::now();
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, prompt, generate] = &arguments[..] else {
        return Err(Error::Msg("usage: candle_peer FILE.gguf PROMPT GENERATE".to_owned()));
    };
    let mut model = Model::open(path)?;
    let prompt = model.ids(prompt.parse().map_err(Error::wrap)?);
    let following = model.ids(generate.parse().map_err(Error::wrap)?);
    model.compute(&prompt[..1], 0)?;
    let first = start.elapsed().as_secs_f64();
    let prompted = model.compute(&prompt, 0)?;
    let mut decoded = 0.0;
    for (place, token) in following.iter().enumerate() {
        decoded += model.compute(&[*token], prompt.len() + place)?;
    }
    let memory = peak_memory_bytes();
    println!(
        "{{\"first\": {first}, \"memory\": {memory}, \"prompt\": {prompted}, \"decode\": {decoded}, \"about\": \"candle 0.9.1\"}}"
    );
    Ok(())
}
