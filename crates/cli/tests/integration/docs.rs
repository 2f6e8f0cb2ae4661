//! Runs the command blocks of the documentation: fenced blocks marked ` ```sh run ` in every Markdown file of the
//! repository.
//!
//! The blocks of one page run in order in one temporary directory, which is also the home directory, with the built
//! `trueup` on PATH and these files:
//!
//! | name | content |
//! |---|---|
//! | `fixtures/` | a link to the fixtures of the repository |
//! | `hf-model/` | the Hugging Face directory of `fixtures/stories-1M` |
//! | `model.gguf`, `model.flm` | the same model, converted |
//! | `model-q4_0.gguf`, `model-q8_0.gguf` | `model.gguf`, quantized with `-b 4` and `-b 8` |
//! | `ids.txt` | the ids 0 to 499, as a range |
//! | `corpus.txt` | a text of about 1,000 words |
//! | `gate.toml` | `docs/examples/gate.toml` |
//!
//! A block passes when its last command exits with 0 and no earlier command fails, or with N when it is marked
//! ` ```sh run exit=N `. When the next block of the page is marked ` ```text output `, each of its lines must occur in
//! what the commands print; a line `...` stands for lines that are left out.
#![cfg(unix)]

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A fenced block.
struct Block {
    /// The line of its opening fence, from 1.
    line: usize,
    /// What follows the fence: the language and the marks.
    info: String,
    text: String,
}

impl Block {
    /// The exit code that a block to be run must end with.
    fn expected_exit(&self) -> Option<Result<i32, String>> {
        let mut words = self.info.split_whitespace();
        if (words.next(), words.next()) != (Some("sh"), Some("run")) {
            return None;
        }
        let mut code = Ok(0);
        for word in words {
            code = match word.strip_prefix("exit=").map(str::parse) {
                Some(Ok(expected)) => Ok(expected),
                _ => Err(format!("expected exit=N after \"sh run\", found \"{word}\"")),
            };
        }
        Some(code)
    }

    fn is_output(&self) -> bool {
        self.info == "text output"
    }
}

#[test]
fn every_runnable_command_block_runs() {
    let models = tempfile::tempdir().expect("a temporary directory");
    prepare(models.path());
    let (mut faults, mut count) = (Vec::new(), 0);
    for page in pages() {
        let text = fs::read_to_string(root().join(&page)).expect("pages are UTF-8");
        let blocks = blocks(&text);
        let faults_before = faults.len();
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut is_empty = true;
        for (index, block) in blocks.iter().enumerate() {
            let place = format!("{page}:{}", block.line);
            match block.expected_exit() {
                None if block.is_output() && !follows_a_run(&blocks, index) => {
                    faults.push(format!("{place}: \"text output\" must follow a block marked \"sh run\""));
                }
                None => {}
                Some(Err(fault)) => faults.push(format!("{place}: {fault}")),
                // Later blocks of a page need the files of earlier ones.
                Some(Ok(_)) if faults.len() > faults_before => {}
                Some(Ok(exit)) => {
                    if is_empty {
                        copy(models.path(), directory.path());
                        symlink(root().join("fixtures"), directory.path().join("fixtures")).expect("a link");
                        is_empty = false;
                    }
                    count += 1;
                    let output = blocks.get(index + 1).filter(|next| next.is_output());
                    faults.extend(run(block, exit, output, directory.path()).map(|fault| format!("{place}: {fault}")));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{} of {count} command blocks failed:\n\n{}", faults.len(), faults.join("\n\n"));
    assert!(count > 0, "no page has a block marked \"sh run\"");
}

#[test]
fn a_failing_block_is_reported() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let page = "```sh run\ntrueup no-such-command\n```\n\n```sh run exit=2\ntrueup no-such-command | cat\n```\n\n\
                ```text output\nthis is not printed\n```\n\n```sh run\nfalse\necho reached\n```\n";
    let blocks = blocks(page);
    let lines: Vec<usize> = blocks.iter().map(|block| block.line).collect();
    assert_eq!(lines, [1, 5, 9, 13]);
    let fault = |index: usize, exit| run(&blocks[index], exit, None, directory.path());
    assert!(fault(0, 0).is_some_and(|fault| fault.contains("exit code 2, expected 0")));
    assert!(fault(0, 2).is_none());
    let missing = run(&blocks[1], 2, Some(&blocks[2]), directory.path());
    assert!(missing.is_some_and(|fault| fault.contains("this is not printed")));
    assert!(fault(3, 0).is_some_and(|fault| fault.contains("exit code 1")));
}

fn follows_a_run(blocks: &[Block], index: usize) -> bool {
    index.checked_sub(1).is_some_and(|before| blocks[before].expected_exit().is_some())
}

/// Runs a block and returns what is wrong with it.
fn run(block: &Block, exit: i32, output: Option<&Block>, directory: &Path) -> Option<String> {
    let program = Path::new(env!("CARGO_BIN_EXE_trueup")).parent().expect("the binary has a directory");
    let mut path = program.as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", &block.text]).current_dir(directory).env("PATH", path);
    // Some pages write to the home directory.
    command.env("HOME", directory);
    let result = command.stdin(Stdio::null()).output().expect("bash starts");
    let printed = [result.stdout, result.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    let fault = if result.status.code() != Some(exit) {
        let found = result.status.code().map_or_else(|| result.status.to_string(), |code| format!("exit code {code}"));
        format!("{found}, expected {exit}")
    } else {
        let lines = output.map_or("", |output| &output.text).lines().map(str::trim_end);
        let line =
            lines.filter(|line| *line != "...").find(|line| !printed.lines().any(|other| other.trim_end() == *line))?;
        format!("the output lacks the line that the page shows: {line}")
    };
    Some(format!("{fault}\n--- commands\n{}--- output\n{printed}", block.text))
}

/// Makes the files that each page starts with.
fn prepare(target: &Path) {
    let source = root().join("fixtures/stories-1M");
    let checkpoint = target.join("hf-model");
    fs::create_dir(&checkpoint).expect("a new directory");
    for entry in fs::read_dir(source).expect("the fixture") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a file has a name").to_owned();
        if !name.to_string_lossy().starts_with("golden.") {
            fs::copy(&path, checkpoint.join(name)).expect("a copy");
        }
    }
    for arguments in [
        ["convert", "hf-model", "model.gguf", "-q"].as_slice(),
        &["convert", "model.gguf", "model.flm", "-q"],
        &["quantize", "-b", "4", "model.gguf", "model-q4_0.gguf", "-q"],
        &["quantize", "-b", "8", "model.gguf", "model-q8_0.gguf", "-q"],
    ] {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_trueup"));
        command.args(arguments).current_dir(target).assert().success();
    }
    let sentence = "Once upon a time, there was a little girl who liked to play with her red ball in the park.\n";
    fs::write(target.join("corpus.txt"), sentence.repeat(50)).expect("a text");
    fs::write(target.join("ids.txt"), "0-499\n").expect("a text");
    fs::copy(root().join("docs/examples/gate.toml"), target.join("gate.toml")).expect("a copy");
}

/// Copies the files of a directory, and those one level below.
fn copy(source: &Path, target: &Path) {
    for entry in fs::read_dir(source).expect("a directory") {
        let path = entry.expect("an entry").path();
        let target = target.join(path.file_name().expect("an entry has a name"));
        if path.is_dir() {
            fs::create_dir(&target).expect("a new directory");
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).expect("a copy");
        }
    }
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_open = false;
    for (event, range) in Parser::new_ext(page, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                is_open = true;
                let line = page[..range.start].lines().count() + 1;
                blocks.push(Block { line, info: info.into_string(), text: String::new() });
            }
            Event::End(TagEnd::CodeBlock) => is_open = false,
            Event::Text(text) if is_open => blocks.last_mut().expect("a block is open").text.push_str(&text),
            _ => {}
        }
    }
    blocks
}

/// All Markdown files, as paths from the root of the repository.
fn pages() -> Vec<String> {
    let mut pages = Vec::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(root().join(&directory)).expect("directories can be read") {
            let entry = entry.expect("an entry");
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = directory.join(&name);
            if root().join(&path).is_dir() {
                if name != "target" && (!name.starts_with('.') || name == ".github") {
                    directories.push(path);
                }
            } else if name.ends_with(".md") {
                pages.push(path.to_string_lossy().into_owned());
            }
        }
    }
    pages.sort();
    pages
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository has a root")
}
