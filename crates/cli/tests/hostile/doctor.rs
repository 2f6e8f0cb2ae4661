//! `inspect --doctor` on every case: it ends, it says something, and what it says moves no terminal.

use crate::case::{Call, Case};
use crate::runner::{limited, moves_terminal, shown};
use std::fs;
use std::process::Output;

/// What the doctor did wrong, if anything. Models beside a trace are good ones, and were looked at elsewhere.
pub fn complaint(family: &str, case: &Case) -> Option<String> {
    if case.trace.is_some() {
        return None;
    }
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let folder = scratch.path().join("case");
    fs::create_dir(&folder).expect("a directory can be made");
    case.write(&folder);
    let model = folder.join(case.model);
    let model = model.to_str().expect("paths of tests are UTF-8");
    let arguments = ["inspect", model, "--doctor", "-t", "1", "--quiet"].map(str::to_owned);
    let output = limited(&arguments, Call::Show, case.memory_kib);
    judged(case, &output).err().map(|problem| {
        let (out, err) = (shown(&output.stdout), shown(&output.stderr));
        format!(
            "{family}/{}: {problem}\n  trueup {}\n  {:?}\n  {out}\n  {err}\n",
            case.name,
            arguments.join(" "),
            output.status
        )
    })
}

/// Notes about models that other commands refuse although nothing is wrong with them: unknown here, or for ids alone.
const MAY_BE_HEALTHY: [&str; 3] = ["architecture-not-known: ", "tokenizer-not-known: ", "tokenizer-missing: "];

/// A bad model has findings, or is none at all; where nothing is wrong with it, a note says why it is not used.
fn judged(case: &Case, output: &Output) -> Result<(), String> {
    let stdout = String::from_utf8(output.stdout.clone()).map_err(|_| "stdout is not UTF-8".to_owned())?;
    let stderr = String::from_utf8(output.stderr.clone()).map_err(|_| "stderr is not UTF-8".to_owned())?;
    let text = format!("{stdout}{stderr}");
    if text.contains("this is a bug") {
        return Err("it is a bug".to_owned());
    }
    if let Some(c) = text.chars().find(|c| moves_terminal(*c) && !"\n\t".contains(*c)) {
        return Err(format!("the text has {}", c.escape_unicode()));
    }
    match output.status.code() {
        Some(2) if case.is_refused() && stdout.is_empty() && stderr.starts_with("error: ") => Ok(()),
        Some(1) if stderr.is_empty() && stdout.contains("\n  why: ") => Ok(()),
        Some(0) if !case.is_refused() || MAY_BE_HEALTHY.iter().any(|name| stdout.contains(name)) => Ok(()),
        _ => Err("the exit code does not fit what was found".to_owned()),
    }
}
