//! Prints the ids of many texts, so that scripts can compare them with another program's.
//!
//! ```text
//! cargo run -p trueup-tokenizer --example ids -- FILE [--slim] < texts.jsonl
//! ```
//!
//! Reads one JSON string per line and writes one `[ids, decoded text]` per line. FILE is a `tokenizer.model`, a
//! `tokenizer.json` or an `ice_text.model` without IDs of image tokens. The IDs must be the same after a round trip
//! through GGUF keys; with `--slim`, also with a vocabulary that is pruned to the text.

use serde_json::json;
use std::collections::BTreeSet;
use std::error::Error;
use std::io::{BufRead, Write};
use std::path::Path;
use trueup_formats::TokenizerFiles;
use trueup_formats::gguf::Metadata;
use trueup_tokenizer::{ModelTokens, Tokenizer, Vocabulary};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let path = Path::new(arguments.first().ok_or("expected a file")?);
    let vocabulary = Vocabulary::from_files(&files(path)?, &ModelTokens::default(), path)?;
    let mut keys = Metadata::default();
    vocabulary.write_metadata(&mut keys)?;
    let from_keys = Tokenizer::new(Vocabulary::from_metadata(&keys, path)?)?;
    let tokenizer = Tokenizer::new(vocabulary)?;
    let is_slim = arguments.iter().any(|argument| argument == "--slim");
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let text: String = serde_json::from_str(&line?)?;
        let ids = tokenizer.encode(&text, false)?;
        if from_keys.encode(&text, false)? != ids || (is_slim && slimmed(&tokenizer, &text)? != ids) {
            return Err(format!("different IDs for {text:?}").into());
        }
        let decoded = String::from_utf8_lossy(&tokenizer.decode(&ids, false)).into_owned();
        writeln!(out, "{}", json!([ids, decoded]))?;
    }
    Ok(())
}

fn files(path: &Path) -> Result<TokenizerFiles, Box<dyn Error>> {
    let (bytes, files) = (Some(std::fs::read(path)?), TokenizerFiles::default());
    let is_ice_text = path.file_stem().is_some_and(|name| name == "ice_text");
    Ok(match path.extension().is_some_and(|extension| extension == "json") {
        true => TokenizerFiles { tokenizer_json: bytes, ..files },
        false if is_ice_text => {
            let tokenizer_config = json!({"num_image_tokens": 0}).as_object().cloned();
            TokenizerFiles { ice_text: bytes, tokenizer_config, ..files }
        }
        false => TokenizerFiles { tokenizer_model: bytes, ..files },
    })
}

/// The ids of a text by a vocabulary of the tokens that it needs, as the whole vocabulary has them.
fn slimmed(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, Box<dyn Error>> {
    let mut kept: BTreeSet<u32> = tokenizer.tokens_of(text)?.into_iter().collect();
    kept.extend(tokenizer.vocabulary().indispensable());
    let kept: Vec<u32> = kept.into_iter().collect();
    let ids = Tokenizer::new(tokenizer.vocabulary().slimmed(&kept)?)?.encode(text, false)?;
    Ok(ids.into_iter().filter_map(|id| kept.get(usize::try_from(id).ok()?).copied()).collect())
}
