//! The files of a folder that say how text becomes tokens; each may be absent.

use crate::checkpoint::{RankFile, SPIECE_MODEL, TOKENIZER_MODEL, TokenizerFiles, VOCABULARY_BYTES_MAX};
use crate::error::{Error, Result};
use crate::fault::{Fault, FaultKind, OnFault};
use crate::foreign::names_in;
use crate::json;
use crate::source_file::SourceFile;
use crate::text_encoding::to_utf8;
use std::borrow::Cow;
use std::io::ErrorKind;
use std::path::Path;

/// The largest chat template that is read, in bytes.
const TEMPLATE_BYTES_MAX: u64 = 1 << 20;

/// Whether the files that hold a vocabulary, or tokens that are added to one, are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Vocabularies {
    Read,
    /// Another tokenizer takes their place.
    Skip,
}

/// Reads what is there; the opened files are added to `sources`. A file with a fault that `on_fault` lets pass is left
/// out.
pub(super) fn read(
    folder: &Path,
    vocabularies: Vocabularies,
    sources: &mut Vec<SourceFile>,
    on_fault: OnFault<'_>,
) -> Result<TokenizerFiles> {
    let mut files = TokenizerFiles::default();
    let reads = vocabularies == Vocabularies::Read;
    if reads {
        files.tokenizer_json = read_file(folder, "tokenizer.json", sources, on_fault, utf8)?;
        files.tokenizer_model = read_file(folder, TOKENIZER_MODEL, sources, on_fault, bytes)?;
        if files.tokenizer_model.is_none() {
            files.tokenizer_model = read_file(folder, SPIECE_MODEL, sources, on_fault, bytes)?;
            files.is_spiece = files.tokenizer_model.is_some();
        }
        files.ice_text = read_file(folder, "ice_text.model", sources, on_fault, bytes)?;
        files.tiktoken = read_ranks(folder, sources, on_fault)?;
        files.vocab_json = read_file(folder, "vocab.json", sources, on_fault, utf8)?;
        files.merges = read_file(folder, "merges.txt", sources, on_fault, utf8)?;
        files.vocab_txt = read_file(folder, "vocab.txt", sources, on_fault, utf8)?;
    }
    files.tokenizer_config = read_file(folder, "tokenizer_config.json", sources, on_fault, json::read_object)?;
    files.special_tokens_map = read_file(folder, "special_tokens_map.json", sources, on_fault, json::read_object)?;
    if reads {
        files.added_tokens = read_file(folder, "added_tokens.json", sources, on_fault, json::read_object)?;
    }
    files.generation_config = read_file(folder, "generation_config.json", sources, on_fault, json::read_object)?;
    files.chat_template = read_file(folder, "chat_template.jinja", sources, on_fault, text)?;
    Ok(files)
}

/// Opens a file; `None` when nothing has that name.
pub(super) fn open_if_there(path: &Path) -> Result<Option<SourceFile>> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Ok(_) | Err(_) => SourceFile::open(path).map(Some),
    }
}

/// The only file with the extension `.tiktoken`.
fn read_ranks(folder: &Path, sources: &mut Vec<SourceFile>, on_fault: OnFault<'_>) -> Result<Option<RankFile>> {
    let names: Vec<String> = names_in(folder).into_iter().filter(|name| name.ends_with(".tiktoken")).collect();
    let Some(name) = names.first() else { return Ok(None) };
    if names.len() > 1 {
        let problem = format!("expected one .tiktoken file, found {}", names.len());
        let error = Error::new(folder, problem).help("name the right one with --tokenizer");
        return on_fault(Fault::new(FaultKind::FileUnreadable, error)).map(|()| None);
    }
    let contents = read_file(folder, name, sources, on_fault, bytes)?;
    Ok(contents.map(|bytes| RankFile { name: name.clone(), bytes }))
}

fn read_file<T>(
    folder: &Path,
    name: &str,
    sources: &mut Vec<SourceFile>,
    on_fault: OnFault<'_>,
    read: fn(&SourceFile) -> Result<T>,
) -> Result<Option<T>> {
    let opened = open_if_there(&folder.join(name));
    let contents = opened.and_then(|source| source.map(|source| Ok((read(&source)?, source))).transpose());
    match contents {
        Ok(None) => Ok(None),
        Ok(Some((contents, source))) => {
            sources.push(source);
            Ok(Some(contents))
        }
        Err(error) => on_fault(Fault::new(FaultKind::FileUnreadable, error)).map(|()| None),
    }
}

fn bytes(source: &SourceFile) -> Result<Vec<u8>> {
    source.read_all(VOCABULARY_BYTES_MAX)
}

/// Text without a byte order mark. Text of another encoding is left to its parser, which names the place.
fn utf8(source: &SourceFile) -> Result<Vec<u8>> {
    let bytes = bytes(source)?;
    let converted = match to_utf8(&bytes).map_err(|problem| Error::new(source.path(), problem))? {
        Cow::Borrowed(text) if text.len() == bytes.len() => None,
        text => Some(text.into_owned()),
    };
    Ok(converted.unwrap_or(bytes))
}

fn text(source: &SourceFile) -> Result<String> {
    let bytes = source.read_all(TEMPLATE_BYTES_MAX)?;
    let text = to_utf8(&bytes).map_err(|problem| Error::new(source.path(), problem))?;
    String::from_utf8(text.into_owned()).map_err(|error| {
        let place = format!("byte {}", error.utf8_error().valid_up_to());
        Error::new(source.path(), "expected UTF-8 text, found other bytes").at(place)
    })
}
