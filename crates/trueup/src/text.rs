//! Tokenizers of models in any format, and texts from files.

use std::path::Path;
use trueup_formats::gguf::{MAGIC, Metadata};
use trueup_formats::{Checkpoint, Description, Error, OpenOptions, Result, SourceFile, TokenizerFiles, to_utf8};
use trueup_tokenizer::{ModelTokens, Tokenizer, Vocabulary};

/// The largest text that is read from a file.
const TEXT_BYTES_MAX: u64 = 64 << 20;

/// The embedding in GGUF files.
const EMBEDDING: &str = "token_embd.weight";

/// The tokenizer of a model file or directory, or the one in the file `replacement`. What `replacement` leaves open,
/// the model decides: bos, eos, the size of the vocabulary.
pub fn open_tokenizer(model: &Path, replacement: Option<&Path>) -> Result<Tokenizer> {
    let tokenizer = replacement.filter(|_| !is_gguf(model)).map(Path::to_owned);
    let checkpoint = trueup_models::open(model, &OpenOptions { tokenizer })?;
    let vocabulary = match (checkpoint.description(), replacement) {
        (Description::Gguf(metadata), None) => Vocabulary::from_metadata(metadata, model)?,
        (Description::Gguf(metadata), Some(file)) => replaced(checkpoint.as_ref(), metadata, file)?,
        (Description::Json(_), _) => trueup_convert::vocabulary(checkpoint.as_ref())?,
    };
    Tokenizer::new(vocabulary)
}

/// Whether a path is a GGUF file, by its first bytes.
fn is_gguf(path: &Path) -> bool {
    let mut start = [0; MAGIC.len()];
    let read = SourceFile::open(path).and_then(|source| source.read_at(0, &mut start));
    read.is_ok() && start == MAGIC
}

/// The vocabulary in a separate file, for a GGUF model with the same number of embedding rows.
fn replaced(checkpoint: &dyn Checkpoint, metadata: &Metadata, file: &Path) -> Result<Vocabulary> {
    let embedding = checkpoint.find(EMBEDDING).and_then(|number| checkpoint.tensors().get(number));
    let size = embedding.and_then(|tensor| tensor.shape.get(1).copied());
    let Some(rows) = size.and_then(|size| usize::try_from(size).ok()) else {
        return Err(Error::new(
            checkpoint.path(),
            format!("expected a tensor {EMBEDDING}, whose rows give the size of the vocabulary, found none"),
        )
        .help("check the file with `trueup inspect MODEL --doctor`"));
    };
    let mut files = TokenizerFiles::default();
    files.replace(file, size)?;
    let id = |key: &str| metadata.u64(key).ok().and_then(|id| u32::try_from(id).ok());
    let tokens = ModelTokens {
        vocab_size: Some(rows),
        bos_token_id: id("tokenizer.ggml.bos_token_id"),
        eos_token_ids: ["eos", "eot", "eom"]
            .iter()
            .filter_map(|role| id(&format!("tokenizer.ggml.{role}_token_id")))
            .filter(|id| usize::try_from(*id).is_ok_and(|id| id < rows))
            .collect(),
        ..ModelTokens::default()
    };
    Vocabulary::from_files(&files, &tokens, file)
}

/// Fails on ids outside the vocabulary.
pub fn check_ids(tokenizer: &Tokenizer, ids: &[u32]) -> Result<()> {
    let vocabulary = tokenizer.vocabulary();
    match ids.iter().find(|id| vocabulary.token(**id).is_none()) {
        None => Ok(()),
        Some(id) => {
            let last = vocabulary.tokens().len().saturating_sub(1);
            let problem = format!("expected token IDs from 0 to {last}, found {id}");
            Err(Error::new(vocabulary.path(), problem))
        }
    }
}

/// Reads a text file in UTF-8, or in UTF-16 with a byte order mark. The mark is not part of the text.
///
/// # Errors
/// I/O, other encodings, and NUL characters, which texts do not contain.
pub fn read_text(file: &Path) -> Result<String> {
    let text = read_prompt(file)?;
    match text.find('\0') {
        None => Ok(text),
        Some(place) => Err(Error::new(file, "expected text, found a NUL character")
            .at(format!("byte {place}"))
            .help("pass a text file in UTF-8, or in UTF-16 with a byte order mark")),
    }
}

/// Like [`read_text`], but accepts NUL characters.
///
/// # Errors
/// I/O, and other encodings.
pub fn read_prompt(file: &Path) -> Result<String> {
    let bytes = SourceFile::open(file)?.read_all(TEXT_BYTES_MAX)?;
    let text = to_utf8(&bytes).map_err(|problem| Error::new(file, problem))?;
    String::from_utf8(text.into_owned()).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        Error::new(file, "expected UTF-8 text, found other bytes")
            .at(format!("byte {place}"))
            .help("convert the file to UTF-8")
    })
}

#[cfg(test)]
mod tests {
    use super::{read_prompt, read_text};

    #[test]
    fn only_prompts_may_have_nul_characters() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("corpus.txt");
        std::fs::write(&file, b"text\0").unwrap();
        assert_eq!(read_prompt(&file).unwrap(), "text\0");
        let error = read_text(&file).unwrap_err().to_string();
        assert!(error.contains("byte 4: expected text, found a NUL character; pass a text file"), "{error}");
    }

    #[test]
    fn byte_order_marks_are_not_part_of_a_text() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("prompt.txt");
        let text = "Once upon a time\n";
        let utf16: Vec<u8> = "\u{feff}".encode_utf16().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect();
        for bytes in [text.as_bytes().to_vec(), format!("\u{feff}{text}").into_bytes(), utf16] {
            std::fs::write(&file, bytes).unwrap();
            assert_eq!(read_text(&file).unwrap(), text);
        }
        std::fs::write(&file, b"caf\xe9").unwrap();
        assert!(read_text(&file).unwrap_err().to_string().contains("byte 3: expected UTF-8 text"));
    }
}
