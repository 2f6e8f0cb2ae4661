//! Runs the command on a case within limits and judges what it did.
//!
//! ```text
//! files ─▶ folder ─▶ sh: ulimit -v, -t ─▶ trueup CALL ─▶ exit code, stdout, stderr, output file ─▶ complaint or nothing
//! ```

use crate::case::{Call, Case};
use crate::doctor;
use rayon::prelude::*;
use std::fs;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

/// Processor time of a command in seconds: a machine with much to do is no hang.
const PROCESSOR_SECONDS: u64 = 10;

/// Time on the wall, for commands that wait instead of computing.
const PATIENCE: Duration = Duration::from_secs(60);

/// Characters of a message.
const MESSAGE_CHARS_MAX: usize = 800;

/// A text that patterns can take long for.
const TEXT: &str = "the cat aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!";

/// What stands at the name of an output before a command.
const OLD: &[u8] = b"old";

/// Runs all cases and returns every complaint, in the order of the cases.
pub fn complaints(family: &str, cases: &[Case]) -> Vec<String> {
    let found = cases.par_iter().flat_map_iter(|case| {
        let refused = case.refused_by.iter().map(|call| (*call, true));
        let calls = refused.chain(case.accepted_by.iter().map(|call| (*call, false)));
        let complaints = calls.filter_map(|(call, refuses)| complaint(family, case, call, refuses));
        complaints.chain(doctor::complaint(family, case)).collect::<Vec<_>>()
    });
    found.collect()
}

fn complaint(family: &str, case: &Case, call: Call, refuses: bool) -> Option<String> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (folder, out) = (scratch.path().join("case"), scratch.path().join("out"));
    fs::create_dir(&folder).and_then(|()| fs::create_dir(&out)).expect("directories can be made");
    case.write(&folder);
    let target = out.join("out.gguf");
    if writes(call) {
        fs::write(&target, OLD).expect("a file can be written");
    }
    let arguments = arguments(case, call, &folder, &target);
    let output = limited(&arguments, call, case.memory_kib);
    let judged = if refuses {
        check_refusal(&output, case).and_then(|()| check_old(&target, call))
    } else {
        check_acceptance(&output, call).and_then(|()| check_new(&target, call))
    };
    let judged = judged.and_then(|()| check_names(&out, call));
    let wanted = if refuses { "refused" } else { "accepted" };
    judged.err().map(|problem| {
        let (out, err) = (shown(&output.stdout), shown(&output.stderr));
        let call = arguments.join(" ");
        format!(
            "{family}/{}: must be {wanted}: {problem}\n  trueup {call}\n  {:?}\n  {out}\n  {err}\n",
            case.name, output.status
        )
    })
}

fn arguments(case: &Case, call: Call, folder: &Path, target: &Path) -> Vec<String> {
    let model = folder.join(case.model);
    let model = model.to_str().expect("paths of tests are UTF-8");
    let target = target.to_str().expect("paths of tests are UTF-8");
    let trace = folder.join(case.trace.unwrap_or_default());
    let trace = trace.to_str().expect("paths of tests are UTF-8");
    let mut words = match call {
        Call::Inspect => vec!["inspect", model, "--json"],
        Call::Show => vec!["inspect", model],
        Call::Tokenize => vec!["tokenize", model, "-p", TEXT, "--json"],
        Call::Convert => vec!["convert", model, target, "--json", "-t", "1"],
        Call::Quantize => vec!["quantize", model, target, "-b", "8", "--json", "-t", "1"],
        Call::Embed => vec!["run", model, "-p", "the cat", "--logits", target, "--json", "-t", "1"],
        Call::Run => vec!["run", model, "-p", "the cat", "-n", "1", "--json", "-t", "1", "-c", "64"],
        Call::Verify => vec!["verify", model, "--ids", "1 5 9", "--steps", "1", "--json", "-", "-t", "1"],
        Call::Chat => vec!["chat", model, "-n", "1", "-t", "1", "-c", "256"],
        Call::Trace => vec!["verify", model, "--ref", trace, "--json", "-", "-t", "1"],
        Call::Diff => vec!["diff", model, model, "--json", "-t", "1"],
    };
    words.push("--quiet");
    words.into_iter().map(str::to_owned).collect()
}

/// Runs the binary under limits of memory and time.
pub fn limited(arguments: &[String], call: Call, memory_kib: u64) -> Output {
    let script = format!("ulimit -v {memory_kib} -t {PROCESSOR_SECONDS} -c 0; exec \"$0\" \"$@\"");
    let mut command = assert_cmd::Command::new("bash");
    let input = if call == Call::Chat { "hello\n" } else { "" };
    command.args(["-c", &script, env!("CARGO_BIN_EXE_trueup")]).args(arguments).write_stdin(input);
    command.timeout(PATIENCE).output().expect("the binary starts")
}

fn check_refusal(output: &Output, case: &Case) -> Result<(), String> {
    let stderr = String::from_utf8(output.stderr.clone()).map_err(|_| "the message is not UTF-8".to_owned())?;
    if output.status.code() != Some(2) {
        return Err("the exit code is not 2".to_owned());
    }
    if !output.stdout.is_empty() {
        return Err("something was printed to stdout".to_owned());
    }
    let Some(message) = stderr.strip_suffix('\n').and_then(|line| line.strip_prefix("error: ")) else {
        return Err("the message is no line `error: ...`".to_owned());
    };
    if message.contains("this is a bug") {
        return Err("it is a bug".to_owned());
    }
    if let Some(c) = message.chars().find(|c| moves_terminal(*c)) {
        return Err(format!("the message has {}", c.escape_unicode()));
    }
    if let Some(missing) = [case.named, case.says].into_iter().find(|words| !message.contains(words)) {
        return Err(format!("the message does not say {missing}"));
    }
    match message.chars().count() {
        count if count > MESSAGE_CHARS_MAX => Err(format!("the message has {count} characters")),
        _ => Ok(()),
    }
}

/// Control characters and those that change the direction of text.
pub fn moves_terminal(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn check_acceptance(output: &Output, call: Call) -> Result<(), String> {
    if output.status.code() != Some(0) {
        return Err("the exit code is not 0".to_owned());
    }
    let stdout = String::from_utf8(output.stdout.clone()).map_err(|_| "stdout is not UTF-8".to_owned())?;
    match call {
        Call::Show | Call::Chat => match stdout.chars().find(|c| moves_terminal(*c) && !"\n\t".contains(*c)) {
            Some(c) => Err(format!("the text has {}", c.escape_unicode())),
            None => Ok(()),
        },
        Call::Inspect | Call::Tokenize | Call::Convert | Call::Quantize | Call::Run | Call::Embed => {
            check_json(&stdout)
        }
        Call::Verify | Call::Trace | Call::Diff => check_json(&stdout),
    }
}

fn check_json(stdout: &str) -> Result<(), String> {
    let parsed = serde_json::from_str::<serde_json::Value>(stdout);
    parsed.map(drop).map_err(|error| format!("stdout is no JSON document: {error}"))
}

fn writes(call: Call) -> bool {
    matches!(call, Call::Convert | Call::Quantize | Call::Embed)
}

fn check_old(target: &Path, call: Call) -> Result<(), String> {
    let same = !writes(call) || fs::read(target).is_ok_and(|bytes| bytes == OLD);
    if same { Ok(()) } else { Err("the old output is gone".to_owned()) }
}

fn check_new(target: &Path, call: Call) -> Result<(), String> {
    let is_new = |bytes: Vec<u8>| if call == Call::Embed { bytes != OLD } else { bytes.starts_with(b"GGUF") };
    let new = !writes(call) || fs::read(target).is_ok_and(is_new);
    if new { Ok(()) } else { Err("there is no new output".to_owned()) }
}

/// Nothing may stand beside the output.
fn check_names(out: &Path, call: Call) -> Result<(), String> {
    let count = fs::read_dir(out).expect("the directory of outputs").count();
    if count == usize::from(writes(call)) { Ok(()) } else { Err(format!("{count} files lie beside each other")) }
}

/// Output for people: cut, escaped.
pub fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().take(900).collect::<String>().escape_debug().to_string()
}
