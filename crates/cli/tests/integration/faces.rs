//! Help, completions, manual pages, and a reader that goes away.

use crate::trueup::{argument, stories, trueup};
use std::process::Command;

const COMMANDS: [&str; 17] = [
    "convert",
    "quantize",
    "run",
    "chat",
    "tokenize",
    "verify",
    "trace",
    "diff",
    "ops",
    "repro",
    "bench",
    "plan",
    "inspect",
    "devices",
    "demo",
    "completions",
    "man",
];

/// Flags that later orders bring: help must not promise them.
const LATER: [&str; 1] = ["--layers"];

#[test]
fn every_command_has_help_with_examples() {
    let all = trueup(&["--help"]).exits(0).stdout;
    for command in COMMANDS {
        assert!(all.contains(&format!("\n  {command} ")), "{command} in {all}");
        let help = trueup(&[command, "--help"]).exits(0);
        assert_eq!(help.stderr, "");
        assert!(help.stdout.contains("Examples:\n  trueup ") || help.stdout.contains("Examples:\n  echo"), "{help:?}");
        for flag in LATER {
            assert!(!help.stdout.contains(flag), "{flag} in {help:?}");
        }
    }
    for task in ["list", "test", "perf"] {
        let help = trueup(&["ops", task, "--help"]).exits(0).stdout;
        assert!(
            help.contains("Examples:\n  trueup ops") && help.contains("--device") && help.contains("--threads"),
            "{help}"
        );
        assert!(!LATER.iter().any(|flag| help.contains(flag)), "{help}");
    }
    for command in ["run", "chat", "verify", "plan", "bench"] {
        let help = trueup(&[command, "--help"]).exits(0).stdout;
        assert!(help.contains("--device") && help.contains("--dev"), "{help}");
    }
    let details =
        [("chat", "--context-shift"), ("verify", "f64"), ("diff", "GGUF"), ("bench", "synth:"), ("demo", "network")];
    for (command, word) in details {
        let about = |flag: &str| {
            let help = trueup(&[command, flag]).exits(0).stdout;
            help.split("\nUsage: ").next().expect("a description").to_owned()
        };
        assert!(about("--help").contains(word) && about("-h").trim_end().lines().count() == 1, "{command}");
        assert!(!trueup(&[command, "-h"]).exits(0).stdout.contains("Examples:"), "{command}");
    }
    for command in ["convert", "quantize", "run", "chat", "verify", "inspect", "demo"] {
        assert!(trueup(&[command, "--help"]).exits(0).stdout.contains("-t, --threads"), "{command}");
    }
}

#[test]
fn examples_of_the_help_are_true() {
    for command in COMMANDS {
        let help = trueup(&[command, "--help"]).exits(0).stdout;
        for example in help.lines().filter(|line| line.starts_with("  trueup ")) {
            let words = words(example.trim_start().trim_start_matches("trueup "));
            let mut words: Vec<&str> =
                words.iter().map(String::as_str).take_while(|word| ![">", "|"].contains(word)).collect();
            if ["bench", "demo", "ops"].contains(&command) {
                // They would write where users' files lie, and take long.
                words.push("--help");
            }
            let told = trueup(&words);
            let usage = ["unexpected argument", "invalid value", "required arguments", "cannot be used"];
            assert!(!usage.iter().any(|text| told.stderr.contains(text)), "{example}: {told:?}");
        }
    }
}

#[test]
fn bad_calls_exit_with_2() {
    for call in [
        &[][..],
        &["no-such-command"],
        &["run"],
        &["devices", "--no-such-flag"],
        &["man", "no-such-command"],
        &["completions", "tcl"],
    ] {
        let told = trueup(call).exits(2);
        assert!(told.stdout.is_empty() && !told.stderr.is_empty(), "{told:?}");
    }
    assert!(trueup(&["--version"]).exits(0).stdout.starts_with("trueup "));
}

#[test]
fn completions_and_manual_pages_name_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = trueup(&["completions", shell]).exits(0).stdout;
        assert!(
            COMMANDS.iter().all(|command| script.contains(command)) && script.contains("split-max-size"),
            "{shell}"
        );
    }
    let page = trueup(&["man"]).exits(0).stdout;
    assert!(page.contains(".TH trueup") && page.contains("Exit codes"), "{page}");
    for command in COMMANDS {
        let page = trueup(&["man", command]).exits(0).stdout;
        assert!(page.contains(&format!(".TH trueup-{command}")) && page.contains(".SH OPTIONS"), "{command}: {page}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_command_without_a_word() {
    for call in [vec!["inspect", "FOLDER"], vec!["devices", "--json"], vec!["man"], vec!["completions", "bash"]] {
        let folder = argument(&stories());
        let call = call.iter().map(|word| if *word == "FOLDER" { folder.as_str() } else { word });
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = Command::new(env!("CARGO_BIN_EXE_trueup")).args(call).stdout(writer).output().expect("it starts");
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(2), &b""[..]));
    }
}

/// Words of a command line; quotes hold them together.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (None, '"' | '\'') => quote = Some(c),
            (None, ' ') => words.push(String::new()),
            (Some(open), _) if c == open => quote = None,
            (Some(_) | None, _) => words.last_mut().expect("a word").push(c),
        }
    }
    words
}
