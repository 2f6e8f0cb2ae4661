//! Commands to be pasted: words quoted for a shell, the tokens that showed a failure, what is to be tried.
//!
//! ```text
//!   trueup verify 'my model.gguf' --ids '1 5 9' --steps 2 --dev ref
//! ```

use crate::report::Report;
use crate::verify::STEPS_DEFAULT;
use trueup_formats::quote;

/// Flags that say how the `cpu` and `cuda` devices compute.
const OF_DEVICE: [&str; 3] = ["--isa", "--no-repack", "--matmul"];

/// Ids that a command holds at most: with more it would be no line to be read.
const IDS_MAX: usize = 24;

/// A word as a POSIX shell takes it for one.
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_=./:,@+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The name of a file as a word, in which no letter moves the text around it.
pub fn file_word(file: &str) -> String {
    let shown = |c: char| quote(&c.to_string()).chars().eq([c]);
    if file.chars().all(shown) { shell_word(file) } else { quote(file) }
}

/// The command, in its quotes, that verifies the model again with `options` on the tokens of one run; of all prompts
/// where that is their batch or `None`. Where they are too many the command is without them and the text says so.
pub(crate) fn verify_again(report: &Report, prompt: Option<usize>, options: &str) -> String {
    let model = file_word(&report.model);
    let prompts = chosen(&report.prompts, prompt);
    let decoders = chosen(&report.decoder_prompts, prompt);
    let steps = if report.steps == STEPS_DEFAULT { String::new() } else { format!(" --steps {}", report.steps) };
    let options = with_arguments(report, options);
    if prompts.iter().chain(decoders).map(Vec::len).sum::<usize>() > IDS_MAX {
        return format!("`trueup verify {model}{steps}{options}` on the same prompts");
    }
    let words = |ids: &Vec<u32>| ids.iter().map(u32::to_string).collect::<Vec<String>>().join(" ");
    let list = |flag: &str, lists: &[Vec<u32>]| -> String {
        lists.iter().map(|ids| format!(" {flag} {}", shell_word(&words(ids)))).collect()
    };
    let ids = list("--ids", prompts) + &list("--decoder-ids", decoders);
    format!("`trueup verify {model}{ids}{steps}{options}`")
}

/// The list of one prompt; of all if it is their batch or `None`.
fn chosen(lists: &[Vec<u32>], prompt: Option<usize>) -> &[Vec<u32>] {
    prompt.and_then(|prompt| lists.get(prompt)).map_or(lists, std::slice::from_ref)
}

/// Those `options`, and the arguments of the run that they do not say otherwise; a flag of one device is none of
/// another.
fn with_arguments(report: &Report, options: &str) -> String {
    let other = options.contains("--dev ");
    let kept = |argument: &&String| {
        let flag = argument.split(' ').next().unwrap_or_default();
        let is_of_other = other && OF_DEVICE.contains(&flag);
        !options.contains(flag) && !is_of_other
    };
    let device = (!other && report.device.name != "cpu").then(|| format!(" --dev {}", report.device.name));
    let own: String = report.arguments.iter().filter(kept).map(|argument| format!(" {argument}")).collect();
    let options = if options.is_empty() { String::new() } else { format!(" {options}") };
    format!("{options}{}{own}", device.unwrap_or_default())
}

/// The command that computes what the file holds alone, as the run did, with the same fault where one was planted.
pub(crate) fn repro_alone(report: &Report, file: &str) -> String {
    format!("trueup repro {}{}", file_word(file), repro_arguments(report))
}

/// What stands behind the file there.
pub(crate) fn repro_arguments(report: &Report) -> String {
    let own = report.arguments.iter().filter(|argument| OF_DEVICE.iter().any(|flag| argument.starts_with(flag)));
    let own: String = own.map(|argument| format!(" {argument}")).collect();
    let planted = report.planted.as_ref().map_or(String::new(), |planted| format!(" --inject-fault {}", planted.name));
    format!(" --dev {}{own}{planted}", report.device.name)
}

/// The command that a sentence ends with, to be copied.
pub(crate) fn command_of(sentence: &str) -> Option<&str> {
    let (_, next) = sentence.rsplit_once("Next: ")?;
    next.split('`').nth(1)
}

#[cfg(test)]
mod tests {
    use super::{file_word, shell_word};

    #[test]
    fn words_are_one_word_for_a_shell() {
        // python3 -c "import shlex; print(shlex.split(WORD))" gives one word for each of these.
        let cases = [("a-b_c.gguf", "a-b_c.gguf"), ("my model", "'my model'"), ("it's", r"'it'\''s'"), ("", "''")];
        for (word, expected) in cases {
            assert_eq!(shell_word(word), expected);
        }
        assert_eq!(file_word("a\nb"), "a\\u{a}b", "a sentence stays one line");
        let long = "a".repeat(300);
        assert_eq!(file_word(&long), long, "a path is never cut");
    }
}
