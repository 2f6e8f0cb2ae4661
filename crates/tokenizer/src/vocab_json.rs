//! `vocab.json` and `merges.txt` of GPT-2's family, in models without a `tokenizer.json`: the same as one, in two files.
//!
//! ```text
//! vocab.json   {"Ġthe": 262, ...}      merges.txt   #version: 0.2 | Ġ t | h e | ...      the first to be merged first
//! ```

use crate::tokenizer_json;
use crate::vocabulary::Parts;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use trueup_formats::{Error, Result, quote};

/// What errors call the files.
const VOCABULARY: &str = "vocab.json";
const MERGES: &str = "merges.txt";

/// Builds the parts; `vocab_size` is the model's, and `path` the model that errors name.
pub(crate) fn read(vocab: &[u8], merges: &[u8], vocab_size: Option<usize>, path: &Path) -> Result<Parts> {
    let vocab: BTreeMap<String, u32> = serde_json::from_slice(vocab)
        .map_err(|problem| Error::new(path, quote(&problem.to_string())).at(VOCABULARY))?;
    let text = std::str::from_utf8(merges).map_err(|error| {
        let problem = "expected UTF-8 text, found other bytes";
        Error::new(path, problem).at(format!("{MERGES}, byte {}", error.valid_up_to()))
    })?;
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with("#version"));
    let merges: Vec<&str> = lines.map(|line| line.trim_end_matches('\r')).collect();
    let file = json!({
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    });
    tokenizer_json::read(file.to_string().as_bytes(), vocab_size, path).map_err(|error| {
        error.help("vocab.json and merges.txt were read as one tokenizer.json; use the files of the same tokenizer")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_files_are_one_tokenizer() {
        let path = Path::new("model");
        let vocab = br#"{"a": 0, "b": 1, "ab": 2}"#;
        let parts = read(vocab, b"#version: 0.2\na b\n", None, path).unwrap();
        assert_eq!(parts.tokens.len(), 3);
        for (vocab, merges, expected) in [
            (&b"{"[..], &b""[..], "vocab.json"),
            (&b"[1]"[..], &b""[..], "vocab.json"),
            (&br#"{"a": -1}"#[..], &b""[..], "vocab.json"),
            (vocab, b"a \xff", "merges.txt, byte 2"),
            (vocab, b"a c", "not in the vocabulary"),
            (vocab, b"a", "two tokens"),
        ] {
            let error = read(vocab, merges, None, path).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
