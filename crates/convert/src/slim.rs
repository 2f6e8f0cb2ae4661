//! Vocabulary pruning: selects the tokens to keep and records them in the file.
//!
//! ```text
//! ids:FILE      ids and ranges like 0-319, one per line; # starts a comment     ┐
//! corpus:FILE   all tokens that the text needs                                  ├─▶ sorted ids ─▶ rows, tokens, roles
//! drop:A-B      all tokens except these                                         ┘
//!
//! trueup.vocabulary.source_size   tokens of the source        trueup.vocabulary.source_ids   source id of each token
//! ```
//!
//! The logits of kept tokens do not change: their rows are copied, and no other row contributes to them.

use crate::describe::vocabulary_of;
use crate::mapping::Mapping;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use trueup_formats::gguf::Metadata;
use trueup_formats::{Checkpoint, Error, Result, SourceFile, quote, to_utf8};
use trueup_tokenizer::{Tokenizer, Vocabulary};

/// The number of tokens that the source has.
const SOURCE_SIZE: &str = "trueup.vocabulary.source_size";
/// The id that each token has in the source.
const SOURCE_IDS: &str = "trueup.vocabulary.source_ids";

/// The largest list or corpus that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Which tokens are kept. As text: `ids:FILE`, `corpus:FILE` or `drop:A-B`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Slim {
    /// Those that a file lists, and those that no vocabulary may lack.
    Ids(PathBuf),
    /// Those that encoding the text of a file needs, and those that no vocabulary may lack.
    Corpus(PathBuf),
    /// All but these.
    Drop(RangeInclusive<u32>),
}

/// Text that is not a choice of tokens. The text is not repeated: the caller has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlimError(pub String);

impl std::fmt::Display for SlimError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SlimError {}

impl FromStr for Slim {
    type Err = SlimError;

    fn from_str(text: &str) -> std::result::Result<Slim, SlimError> {
        match text.split_once(':') {
            Some(("ids", file)) if !file.is_empty() => Ok(Slim::Ids(file.into())),
            Some(("corpus", file)) if !file.is_empty() => Ok(Slim::Corpus(file.into())),
            Some(("drop", ids)) => range(ids).map(Slim::Drop).map_err(SlimError),
            _ => Err(SlimError("expected ids:FILE, corpus:FILE or drop:A-B".to_owned())),
        }
    }
}

impl Slim {
    /// The ids that are kept, rising.
    ///
    /// # Errors
    /// A list that cannot be read or names what is no token, a corpus that is no text, a range with tokens that steer
    /// the model, and a source without a vocabulary where that is asked.
    pub(crate) fn kept(&self, source: &dyn Checkpoint, mapping: &Mapping) -> Result<Vec<u32>> {
        let path = source.path();
        let vocabulary = match source.tokenizer().is_left_out {
            true => None,
            false => Some(vocabulary_of(source, mapping)?),
        };
        let dividing =
            mapping.spec().prefix().into_iter().flat_map(|prefix| [prefix.end, prefix.mark, prefix.other_mark]);
        let mut steering: BTreeSet<u32> = dividing.collect();
        steering.extend(vocabulary.iter().flat_map(Vocabulary::steering));
        let count = mapping.spec().vocabulary_size() as u32;
        let mut kept = match self {
            Slim::Drop(dropped) => {
                let bytes: BTreeSet<u32> = vocabulary.iter().flat_map(Vocabulary::bytes).collect();
                return all_but(dropped, count, &steering, &bytes, path);
            }
            Slim::Ids(file) => listed(file, count)?,
            Slim::Corpus(file) => {
                let vocabulary = vocabulary.clone().ok_or_else(|| {
                    let error = Error::new(path, "the model has no vocabulary to encode the corpus with");
                    error.at("--prune-vocab").help("pass its tokenizer with --tokenizer, or list IDs with ids:FILE")
                })?;
                let (tokenizer, text) = (Tokenizer::new(vocabulary)?, text_of(file)?);
                let mut needed: BTreeSet<u32> = tokenizer.tokens_of(&text)?.into_iter().collect();
                // A line may be a text too, and begin with what stands before texts alone.
                for line in text.lines().filter(|line| !line.is_empty()) {
                    needed.extend(tokenizer.tokens_of(line)?);
                }
                needed
            }
        };
        if kept.is_empty() {
            return Err(match self {
                Slim::Ids(file) => {
                    Error::new(file, "expected at least one token ID, found none").help("list the IDs to keep")
                }
                Slim::Corpus(file) => {
                    Error::new(file, "expected text, found none").help("pass a file that is not empty")
                }
                Slim::Drop(_) => {
                    Error::new(path, "expected at least one token to keep, found none").at("--prune-vocab")
                }
            });
        }
        kept.extend(steering);
        kept.extend(vocabulary.iter().flat_map(Vocabulary::indispensable));
        Ok(kept.into_iter().filter(|id| *id < count).collect())
    }
}

/// All ids but those of a range, none of which may steer the model or stand for a single byte, without which texts lose
/// letters.
fn all_but(
    dropped: &RangeInclusive<u32>,
    count: u32,
    steering: &BTreeSet<u32>,
    bytes: &BTreeSet<u32>,
    path: &Path,
) -> Result<Vec<u32>> {
    let (first, last) = (dropped.start(), dropped.end());
    let fault = |problem: String| Err(Error::new(path, problem).at(format!("--prune-vocab drop:{first}-{last}")));
    if *last >= count {
        return fault(format!("expected token IDs from 0 to {}, found {last}", count.saturating_sub(1)));
    }
    if let Some(id) = steering.range(dropped.clone()).next() {
        return fault(format!("token {id} is a control token and cannot be dropped; choose a range without it"));
    }
    if let Some(id) = bytes.range(dropped.clone()).next() {
        return fault(format!(
            "token {id} is a byte token, without which some texts cannot be encoded; choose a range without it"
        ));
    }
    if u64::from(last - first) + 1 == u64::from(count) {
        return fault("the range contains every token; choose a smaller range".to_owned());
    }
    Ok((0..count).filter(|id| !dropped.contains(id)).collect())
}

/// The ids of a list.
fn listed(file: &Path, count: u32) -> Result<BTreeSet<u32>> {
    let mut kept = BTreeSet::new();
    for (number, line) in text_of(file)?.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let fault = |problem: String| Error::new(file, problem).at(format!("line {}", number + 1));
        let ids = range(line).map_err(|expected| fault(format!("{expected}, found \"{}\"", quote(line))))?;
        if *ids.end() >= count {
            let last = count.saturating_sub(1);
            return Err(fault(format!("expected token IDs from 0 to {last}, found {}", ids.end())));
        }
        kept.extend(ids);
    }
    Ok(kept)
}

/// One ID, or the first and the last of several: `7`, `0-319`. `Err` says what was expected.
fn range(text: &str) -> std::result::Result<RangeInclusive<u32>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let id = |text: &str| text.trim().parse::<u32>().ok();
    match (id(first), id(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        (Some(first), Some(last)) => Err(format!("expected the lower ID first, as in {last}-{first}")),
        _ => Err("expected an ID or a range such as 0-319".to_owned()),
    }
}

fn text_of(file: &Path) -> Result<String> {
    let bytes = SourceFile::open(file)?.read_all(FILE_BYTES_MAX)?;
    let text = to_utf8(&bytes).map_err(|problem| Error::new(file, problem))?;
    String::from_utf8(text.into_owned()).map_err(|error| {
        let place = format!("byte {}", error.utf8_error().valid_up_to());
        Error::new(file, "expected UTF-8 text, found other bytes").at(place).help("convert the file to UTF-8")
    })
}

/// The vocabulary that is written for a mapping.
pub(crate) fn vocabulary(source: &dyn Checkpoint, mapping: &Mapping) -> Result<Vocabulary> {
    let Some(kept) = mapping.kept() else { return vocabulary_of(source, mapping) };
    vocabulary_of(source, &Mapping::new(source)?)?.slimmed(kept)
}

/// Writes which tokens were kept, and gives what a person should know of it.
pub(crate) fn write_metadata(
    source: &dyn Checkpoint,
    mapping: &Mapping,
    metadata: &mut Metadata,
) -> Result<Vec<String>> {
    let Some(kept) = mapping.kept() else { return Ok(Vec::new()) };
    let whole = Mapping::new(source)?;
    let all = whole.spec().vocabulary_size();
    metadata.insert(SOURCE_SIZE, u32::try_from(all).unwrap_or(u32::MAX));
    let ids: Vec<i32> = kept.iter().map(|id| i32::try_from(*id).unwrap_or(i32::MAX)).collect();
    metadata.insert(SOURCE_IDS, ids);
    let mut notes = vec![format!(
        "{} of {all} tokens are kept and renumbered; their embedding rows, output head rows and logits are unchanged \
         ({SOURCE_IDS} lists the old IDs)",
        kept.len()
    )];
    if !source.tokenizer().is_left_out {
        let vocabulary = vocabulary_of(source, &whole)?;
        let lost = vocabulary.added().iter().filter(|added| kept.binary_search(&added.id).is_err());
        let lost: Vec<String> = lost.map(|added| format!("\"{}\"", quote(&added.content))).collect();
        if !lost.is_empty() {
            notes.push(format!(
                "user-defined tokens are dropped; their text is now split into other tokens: {}",
                trueup_formats::listed(&lost, ", ")
            ));
        }
    }
    Ok(notes)
}

/// Whether a file says that it was slimmed.
pub(crate) fn is_slimmed(metadata: &Metadata) -> bool {
    metadata.contains(SOURCE_IDS)
}

/// The keys that say which tokens of its source a slimmed file has.
pub(crate) const KEYS: [&str; 2] = [SOURCE_SIZE, SOURCE_IDS];

/// The ids that a file was slimmed to, of a source with `count` tokens; `None` where it was not.
pub(crate) fn kept_in(metadata: &Metadata, count: usize, path: &Path) -> Result<Option<Vec<u32>>> {
    if !is_slimmed(metadata) {
        return Ok(None);
    }
    let help = "compare it with the model that it was made from";
    let size = metadata.u64(SOURCE_SIZE).map_err(|error| error.in_file(path))?;
    if size != count as u64 {
        let problem = format!("the file was made from a model with {size} tokens, found one with {count}");
        return Err(Error::new(path, problem).at(format!("key {SOURCE_SIZE}")).help(help));
    }
    let ids = metadata.i32s(SOURCE_IDS).map_err(|error| error.in_file(path))?;
    let kept: Vec<u32> = ids.iter().filter_map(|id| u32::try_from(*id).ok()).collect();
    let is_rising = kept.windows(2).all(|pair| pair[0] < pair[1]);
    let is_inside = kept.last().is_some_and(|last| (*last as usize) < count);
    if kept.len() != ids.len() || !is_rising || !is_inside {
        let problem = format!("expected ascending ids of the source's {count} tokens");
        return Err(Error::new(path, problem).at(format!("key {SOURCE_IDS}")).help(help));
    }
    Ok(Some(kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_or_refused() {
        assert_eq!("ids:a".parse(), Ok(Slim::Ids("a".into())));
        assert_eq!("corpus:a:b".parse(), Ok(Slim::Corpus("a:b".into())));
        assert_eq!("drop:3-9".parse(), Ok(Slim::Drop(3..=9)));
        for wrong in ["", "ids:", "drop:", "drop:9-3", "drop:-1", "drop:0-99999999999", "keep:3", "7"] {
            assert!(wrong.parse::<Slim>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn lists_are_read_line_by_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ids");
        std::fs::write(&file, "# the first\n0-3\n\n 7 # seven\r\n5\n").unwrap();
        assert_eq!(listed(&file, 8).unwrap().into_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 5, 7]);
        for (bytes, expected) in [
            (&b"3\nx"[..], "line 2: expected an ID or a range such as 0-319, found \"x\""),
            (b"0-4000000000", "line 1: expected token IDs from 0 to 7, found 4000000000"),
            (b"5-3", "line 1: expected the lower ID first, as in 3-5, found \"5-3\""),
            (b"8", "found 8"),
            (b"3\n\xff", "byte 2: expected UTF-8"),
        ] {
            std::fs::write(&file, bytes).unwrap();
            let error = listed(&file, 8).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn ranges_spare_what_steers() {
        let (steering, bytes, none) = (BTreeSet::from([1, 6]), BTreeSet::from([3]), BTreeSet::new());
        let path = Path::new("model");
        assert_eq!(all_but(&(2..=5), 8, &steering, &none, path).unwrap(), [0, 1, 6, 7]);
        let faults = [
            (0..=3, "token 1 is a control token"),
            (7..=8, "expected token IDs from 0 to 7, found 8"),
            (6..=6, "token 6 is a control token"),
            (2..=5, "token 3 is a byte token"),
        ];
        for (range, expected) in faults {
            assert!(all_but(&range, 8, &steering, &bytes, path).unwrap_err().to_string().contains(expected));
        }
        assert!(all_but(&(0..=7), 8, &none, &none, path).unwrap_err().to_string().contains("every token"));
    }
}
