//! Plain English: the words that CONTRIBUTING.md lists do not appear in anything a user reads, comments use fewer of
//! them with every change, and no line of prose is wider than 120 columns.
//!
//! Text for users is every Markdown page and template, every string in the sources of a crate, and the doc comments
//! that become help texts and Python docs. Comments and tests are counted per folder in `language.toml`; counts only
//! shrink.

use crate::{Source, report, root, sources, tracked_files};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use std::collections::BTreeMap;
use std::fs;

/// Widest line of prose, in characters.
const COLUMNS_MAX: usize = 120;

/// Words and phrases that ask the reader to translate. Matched as whole words, in any case.
const REJECTED: &[&str] =
    &["behind", "beside", "told", "so many", "nobody", "of its own", "of their own", "comes again", "what is no"];

/// Spellings that text for users does not have: American spelling, one name for a thing.
const SPELLINGS: &[&str] = &[
    "neighbour",
    "neighbours",
    "neighbouring",
    "behaviour",
    "honoured",
    "centred",
    "colour",
    "initialised",
    "hyper-parameter",
    "hyper-parameters",
    "q2_K",
    "q3_K",
    "q4_K",
    "q5_K",
    "q6_K",
];

/// Crates whose doc comments are shown to users: help texts and Python docs.
const DOCS_SHOWN: &[&str] = &["crates/cli/src/", "crates/python/src/"];

/// Pages that quote rejected words as examples or as names in the code.
const QUOTING: &[&str] = &["CONTRIBUTING.md", "docs/mutation-testing.md"];

/// Whether a text contains a word or phrase as a whole.
fn contains_word(text: &str, word: &str) -> bool {
    let is_word = |character: Option<char>| character.is_some_and(|character| character.is_alphanumeric());
    text.match_indices(word).any(|(start, _)| {
        let (before, rest) = text.split_at(start);
        !is_word(before.chars().next_back()) && !is_word(rest[word.len()..].chars().next())
    })
}

/// Rejected words in a text, in the order of the list.
fn rejected_in(text: &str) -> Vec<&'static str> {
    let text = text.to_lowercase();
    REJECTED.iter().filter(|word| contains_word(&text, word)).copied().collect()
}

/// Rejected words and spellings in a text for users.
fn rejected_for_users(text: &str) -> Vec<&'static str> {
    let lowercase = text.to_lowercase();
    // `q4_k` is right, `q4_K` is not.
    let found = |word: &&&str| contains_word(if word.ends_with('K') { text } else { &lowercase }, word);
    rejected_in(text).into_iter().chain(SPELLINGS.iter().filter(found).copied()).collect()
}

/// A literal or doc comment of a source, with the line it starts on.
struct Text {
    line: usize,
    text: String,
    is_doc: bool,
}

/// String literals and doc comments outside of test modules.
fn texts_of(stream: TokenStream, texts: &mut Vec<Text>) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let mut index = 0;
    while let Some(token) = tokens.get(index) {
        index += 1;
        match token {
            TokenTree::Group(group) if is_test_attribute(group) => {
                let body = |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
                index += tokens[index..].iter().position(body).map_or(0, |position| position + 1);
            }
            TokenTree::Group(group) if is_doc_attribute(group) => texts.extend(literals(group.stream(), true)),
            TokenTree::Group(group) => texts_of(group.stream(), texts),
            token => texts.extend(literals(TokenStream::from(token.clone()), false)),
        }
    }
}

fn is_test_attribute(group: &Group) -> bool {
    group.delimiter() == Delimiter::Bracket && group.stream().to_string().replace(' ', "") == "cfg(test)"
}

fn is_doc_attribute(group: &Group) -> bool {
    let mut tokens = group.stream().into_iter();
    group.delimiter() == Delimiter::Bracket
        && matches!(tokens.next(), Some(TokenTree::Ident(name)) if name == "doc")
        && matches!(tokens.next(), Some(TokenTree::Punct(punct)) if punct.as_char() == '=')
}

fn literals(stream: TokenStream, is_doc: bool) -> impl Iterator<Item = Text> {
    stream.into_iter().filter_map(move |token| match token {
        TokenTree::Literal(literal) => {
            let text = literal.to_string();
            let is_text = text.starts_with('"') || text.starts_with("r\"") || text.starts_with("r#");
            is_text.then(|| Text { line: literal.span().start().line, text, is_doc })
        }
        _ => None,
    })
}

/// Whether a user reads what the program has in this source.
fn is_product(source: &Source) -> bool {
    let is_test = source.path.contains("/tests/") || source.path.ends_with("tests.rs");
    source.path.starts_with("crates/") && source.path.contains("/src/") && !is_test
}

/// Texts that users read in a source, as `path:line: word`.
fn rejected_in_texts(source: &Source) -> Vec<String> {
    let stream = source.text.parse().unwrap_or_else(|error| panic!("{}: {error}", source.path));
    let mut texts = Vec::new();
    texts_of(stream, &mut texts);
    let docs_shown = DOCS_SHOWN.iter().any(|folder| source.path.starts_with(folder));
    let shown = texts.into_iter().filter(|text| docs_shown || !text.is_doc);
    shown
        .flat_map(|text| {
            let line = text.line;
            rejected_for_users(&text.text).into_iter().map(move |word| (line, word))
        })
        .map(|(line, word)| format!("{}:{line}: {word:?}", source.path))
        .collect()
}

#[test]
fn text_for_users_avoids_rejected_words() {
    let mut faults: Vec<String> =
        sources().iter().filter(|source| is_product(source)).flat_map(rejected_in_texts).collect();
    for path in tracked_files() {
        let is_shown = [".md", ".pyi", ".jinja", ".yml"].iter().any(|ending| path.ends_with(ending));
        if !is_shown || QUOTING.contains(&path.as_str()) || path.starts_with("fixtures/models/") {
            continue;
        }
        let text = fs::read_to_string(root().join(&path)).expect("pages are UTF-8");
        for (number, line) in text.lines().enumerate() {
            faults.extend(rejected_for_users(line).iter().map(|word| format!("{path}:{}: {word:?}", number + 1)));
        }
    }
    report("words that CONTRIBUTING.md asks not to use, in text for users", &faults);
}

/// The folder whose count a source belongs to: a crate, or a folder of the top level.
fn folder_of(path: &str) -> String {
    let parts = if path.starts_with("crates/") { 2 } else { 1 };
    path.split('/').take(parts).collect::<Vec<_>>().join("/")
}

#[test]
fn rejected_words_only_become_fewer() {
    let endings = [".rs", ".py", ".sh", ".cu", ".cuh", ".cpp", ".h", ".c", "/run"];
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for path in tracked_files() {
        let is_code = endings.iter().any(|ending| path.ends_with(ending));
        if !is_code || path.ends_with("tidy/language.rs") || path.starts_with("fixtures/") {
            continue;
        }
        let text = fs::read_to_string(root().join(&path)).expect("sources are UTF-8");
        let count = text.lines().map(|line| rejected_in(line).len()).sum::<usize>();
        *counts.entry(folder_of(&path)).or_default() += count;
    }
    let text = fs::read_to_string(root().join("tests/tests/tidy/language.toml")).expect("the ratchet is there");
    let allowed: BTreeMap<String, usize> = toml::from_str(&text).expect("the ratchet is TOML: directory = count");
    let folders = counts.keys().chain(allowed.keys()).collect::<std::collections::BTreeSet<_>>();
    let faults = folders.into_iter().filter_map(|folder| {
        let (count, allowed) = (*counts.get(folder).unwrap_or(&0), *allowed.get(folder).unwrap_or(&0));
        match count.cmp(&allowed) {
            std::cmp::Ordering::Greater => Some(format!("{folder}: {count}, at most {allowed} are allowed")),
            std::cmp::Ordering::Less => Some(format!("{folder}: lower its entry in language.toml to {count}")),
            std::cmp::Ordering::Equal => None,
        }
    });
    report("words that CONTRIBUTING.md asks not to use, in code and comments", &faults.collect::<Vec<_>>());
}

/// Lines of a Markdown page that are prose: not in a fenced block, not a table row, not a single link or address.
fn prose_lines(page: &str) -> Vec<(usize, &str)> {
    let mut is_code = false;
    let mut lines = Vec::new();
    for (number, line) in page.lines().enumerate() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") {
            is_code = !is_code;
        }
        let is_link =
            trimmed.split_whitespace().filter(|word| !word.contains("](") && !word.contains("://")).count() < 3;
        if !is_code && !trimmed.starts_with('|') && !is_link {
            lines.push((number + 1, line));
        }
    }
    lines
}

/// Lines of a source that are comments, without the fenced blocks and tables of doc comments.
fn comment_lines<'text>(path: &str, text: &'text str) -> Vec<(usize, &'text str)> {
    let is_hash = [".py", ".pyi", ".sh", ".toml", ".yml", "/run"].iter().any(|ending| path.ends_with(ending));
    let mark = if is_hash { "#" } else { "//" };
    let mut is_code = false;
    let mut comments = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let is_comment = trimmed.starts_with(mark);
        let text = trimmed.trim_start_matches(['/', '!', '#']).trim_start();
        is_code = is_comment && (is_code != text.starts_with("```"));
        if is_comment && !is_code && !text.starts_with('|') && !line.contains("://") {
            comments.push((number + 1, line));
        }
    }
    comments
}

#[test]
fn prose_and_comments_fit_into_120_columns() {
    let mut faults = Vec::new();
    for path in tracked_files().into_iter().filter(|path| !path.starts_with("fixtures/")) {
        let is_source = [".rs", ".py", ".pyi", ".sh", ".cu", ".cuh", ".cpp", ".h", ".c", ".toml", ".yml", "/run"]
            .iter()
            .any(|ending| path.ends_with(ending));
        if !is_source && !path.ends_with(".md") {
            continue;
        }
        let text = fs::read_to_string(root().join(&path)).expect("sources and pages are UTF-8");
        let lines = if is_source { comment_lines(&path, &text) } else { prose_lines(&text) };
        let wide = lines.into_iter().filter(|(_, line)| line.chars().count() > COLUMNS_MAX);
        faults.extend(wide.map(|(number, line)| format!("{path}:{number}: {} columns", line.chars().count())));
    }
    report(&format!("prose and comments wider than {COLUMNS_MAX} columns"), &faults);
}

#[test]
fn whole_words_are_found_in_any_case() {
    assert_eq!(rejected_in("Behind the scenes it is told"), ["behind", "told"]);
    assert_eq!(rejected_in("besides, untold"), [""; 0]);
    let mut texts = Vec::new();
    let source = r#"/// Shown beside.
        fn f() { format!("told {x}") } #[cfg(test)] mod tests { const A: &str = "nobody"; }"#;
    texts_of(source.parse().expect("it is Rust"), &mut texts);
    let found: Vec<_> = texts.iter().flat_map(|text| rejected_in(&text.text)).collect();
    assert_eq!(found, ["beside", "told"]);
}
