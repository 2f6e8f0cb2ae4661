//! Memory that a vocabulary takes while it is read.

use peak_alloc::PeakAlloc;
use std::fmt::Write;
use std::path::Path;
use trueup_formats::TokenizerFiles;
use trueup_tokenizer::{ModelTokens, Vocabulary};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Reads a `vocab.txt` of this many lines. Returns the result, the size of the file and the largest number of bytes
/// that were allocated in addition to it.
fn read(lines: usize, vocab_size: Option<usize>) -> (Result<Vocabulary, String>, usize, usize) {
    let mut text = "[UNK]\n[SEP]\n[PAD]\n[CLS]\n[MASK]\n".to_owned();
    (5..lines).for_each(|number| writeln!(text, "{number:x}").expect("strings grow"));
    let len = text.len();
    let files = TokenizerFiles { vocab_txt: Some(text.into_bytes()), ..TokenizerFiles::default() };
    let model = ModelTokens { vocab_size, ..ModelTokens::default() };
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let read = Vocabulary::from_files(&files, &model, Path::new("model")).map_err(|error| error.to_string());
    (read, len, ALLOCATOR.peak_usage().saturating_sub(before))
}

/// One test, because the allocator counts the bytes of all threads.
#[test]
fn a_vocab_txt_takes_little_memory() {
    let (vocabulary, len, bytes) = read(200_000, None);
    assert_eq!(vocabulary.map(|vocabulary| vocabulary.tokens().len()), Ok(200_000));
    assert!(bytes < 40 * len, "{bytes} bytes for a file of {len} bytes");
    for (lines, rows, expected) in [
        (2_100_000, None, "model: vocab.txt: expected at most 2097152 tokens, found 2100000; check that vocab.txt"),
        (1_000_000, Some(30_522), "expected at most 30522 tokens (the rows of the embedding), found 1000000"),
    ] {
        let (refused, _, bytes) = read(lines, rows);
        let problem = refused.map(|_| ()).expect_err("there are too many lines");
        assert!(problem.contains(expected), "{problem}");
        assert!(bytes < 4096, "{bytes} bytes before {lines} lines were refused");
    }
}
