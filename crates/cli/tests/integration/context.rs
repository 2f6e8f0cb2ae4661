//! Contexts that are full: where a text ends, shifts that go on as a fresh call would, conversations that forget, and
//! Ctrl-C.

use crate::trueup::{Outcome, Scratch, binary, ids, stories, trueup, trueup_with_input};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const CONTEXT: usize = 48;
const BOS: u64 = 1;

fn model(scratch: &Scratch) -> String {
    scratch.gguf(&stories(), "stories.gguf")
}

/// `run` in the small context, in JSON.
fn run(model: &str, flags: &[&str]) -> Outcome {
    let mut call = vec!["run", model, "-c", "48", "--ignore-eos", "--json"];
    call.extend(flags);
    trueup(&call)
}

#[test]
fn without_a_shift_a_full_context_ends_the_text() {
    let scratch = Scratch::new();
    let answer = run(&model(&scratch), &["-p", "Once upon a time"]).exits(0).json();
    let entry = &answer["prompts"][0];
    assert_eq!((&entry["finish"], &entry["context_shifts"]), (&"context".into(), &0.into()));
    assert_eq!(ids(&entry["ids"]).len() + ids(&entry["generated_ids"]).len(), CONTEXT + 1);
}

/// The tokens that remain by the rule of the help text, each time put into a call of its own, which holds nothing else.
#[test]
fn a_shifted_context_goes_on_as_a_fresh_call_with_what_remains() {
    let scratch = Scratch::new();
    let model = model(&scratch);
    for (keep, prompts) in
        [("0", ["Once upon a time", "Tom and Lily"]), ("-1", ["The dog was", "One sunny day, a little fox"])]
    {
        let flags = ["-n", "110", "--context-shift", "--keep", keep, "-p", prompts[0], "-p", prompts[1]];
        let answer = run(&model, &flags).exits(0).json();
        for entry in answer["prompts"].as_array().expect("prompts") {
            let (mut held, generated) = (ids(&entry["ids"]), ids(&entry["generated_ids"]));
            assert_eq!((held[0], &entry["finish"]), (BOS, &"length".into()));
            let kept = if keep == "0" { 1 } else { held.len() };
            let (mut shifts, mut rest) = (0, &generated[..]);
            loop {
                let text = held.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
                let fresh = run(&model, &["--ids", &text]).exits(0).json();
                let told = ids(&fresh["prompts"][0]["generated_ids"]);
                let same = told.len().min(rest.len());
                assert_eq!(rest[..same], told[..same], "keep {keep}, behind {shifts} shifts");
                rest = &rest[same..];
                if rest.is_empty() {
                    break;
                }
                let last = *told.last().expect("a token");
                held.extend(&told[..told.len() - 1]);
                assert_eq!(held.len(), CONTEXT);
                held.drain(kept..kept + (CONTEXT - kept) / 2);
                held.push(last);
                shifts += 1;
            }
            assert!(shifts > 1);
            assert_eq!(entry["context_shifts"], shifts, "keep {keep}");
        }
    }
}

#[test]
fn the_end_of_a_shifted_text_says_how_often() {
    let scratch = Scratch::new();
    let model = model(&scratch);
    let call = ["run", &model, "-c", "48", "-p", "Once upon a time", "--ignore-eos", "-n", "120", "--context-shift"];
    let told = trueup(&call).exits(0);
    assert!(told.stderr.contains(" context shifts; finish reason: length"), "{told:?}");
    let logits = scratch.path("logits.safetensors");
    let kept = trueup(&[&call[..], &["--logits", &logits]].concat()).exits(0);
    assert_eq!(kept.stdout, told.stdout, "logits that are kept change nothing");
}

#[test]
fn what_leaves_no_room_is_refused() {
    let scratch = Scratch::new();
    let model = model(&scratch);
    run(&model, &["-p", "Once", "--keep", "3"]).refuses(&["--context-shift"]);
    run(&model, &["-p", "Once", "--keep", "-2", "--context-shift"]).refuses(&["-1 for all"]);
    // A bos and 46 tokens.
    let ids = format!("1{}", " 439".repeat(46));
    for keep in ["46", "5000", "9223372036854775807", "-1"] {
        let refused = run(&model, &["--ids", &ids, "--keep", keep, "--context-shift"]);
        refused.refuses(&[
            "the first 47 tokens are kept",
            "leave no space in a context of 48",
            "keep at most 45 in addition to",
        ]);
        run(&model, &["-p", "Once", "--keep", keep, "--context-shift", "-n", "60"]).exits(0);
    }
    run(&model, &["--ids", &ids, "--keep", "45", "--context-shift", "-n", "60"]).exits(0);
}

#[test]
fn a_conversation_forgets_what_no_longer_fits() {
    let scratch = Scratch::new();
    let model = model(&scratch);
    let turns: String = (0..8).map(|number| format!("Tell me a story about fox {number}\n")).collect();
    let call = ["chat", &model, "-n", "30", "-c", "100"];
    let full = trueup_with_input(&call, &turns).exits(2);
    assert!(full.stderr.contains("the context holds 100; drop the oldest messages with --context-shift"), "{full:?}");
    let told = trueup_with_input(&[&call[..], &["--context-shift"]].concat(), &turns).exits(0);
    assert_eq!(told.stdout.lines().count(), 8, "{told:?}");
    assert!(told.stderr.contains("dropped the oldest 4 messages"), "{told:?}");
    // One answer that is longer than the context.
    let long = trueup_with_input(&["chat", &model, "-c", "24", "-n", "60", "--context-shift"], "Hello\n").exits(0);
    let short = trueup_with_input(&["chat", &model, "-c", "24", "-n", "60"], "Hello\n").exits(0);
    assert!(long.stdout.len() > short.stdout.len() && short.stderr.contains("is full"), "{long:?} {short:?}");
}

/// A text without end is ended by Ctrl-C at once; what was printed is there, and no file is left behind.
#[test]
fn an_interrupt_ends_a_text_that_has_no_end() {
    let scratch = Scratch::new();
    let model = model(&scratch);
    let logits = scratch.path("logits.safetensors");
    let before = scratch.names();
    for signal in [2, 15] {
        let mut command = binary();
        command.args(["run", &model, "-p", "Once upon a time", "-c", "48", "--ignore-eos", "--context-shift"]);
        command.args(["--logits", &logits]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the binary starts");
        let mut begin = [0; 400];
        child.stdout.as_mut().expect("a pipe").read_exact(&mut begin).expect("the text goes on beyond its context");
        assert!(begin.starts_with(b"Once upon a time, there was"));
        let kill = format!("kill -{signal} {}", child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
        drop(child.stdout.take().map(|mut pipe| std::io::copy(&mut pipe, &mut std::io::sink())));
        let (asked, status) = (Instant::now(), child.wait().expect("it ends"));
        assert_eq!(status.signal(), Some(signal));
        assert!(asked.elapsed() < Duration::from_secs(20));
        assert_eq!(scratch.names(), before);
    }
}
