//! Tips for users who type flags of llama.cpp's tools, or `trueup doctor`: the equivalent in this program.
//!
//! ```text
//! trueup convert model --outtype f16   error: unexpected argument '--outtype' found
//!                                        tip: use --type TYPE: `trueup convert SOURCE OUTPUT --type f16`
//! ```

use crate::Arguments;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use trueup::blocks::DType;
use trueup::quantize::Scheme;

/// Flags of llama.cpp's tools that this program does not have, and what to use.
const FLAGS: &[(&[&str], &str)] = &[
    (&["--outtype"], "use --type TYPE: `trueup convert SOURCE OUTPUT --type f16`"),
    (&["--outfile"], "pass the output after the source: `trueup convert SOURCE OUTPUT`"),
    (&["-ngl", "--ngl", "--n-gpu-layers", "--gpu-layers"], DEVICE_TIP),
    (&["-dev", "-mg", "--main-gpu", "-ts", "--tensor-split", "-sm", "--split-mode"], DEVICE_TIP),
    (&["--n-ctx", "--context-size"], "use -c N (--ctx-size N) for the length of the context"),
    (&["--predict", "--n_predict"], "use -n N (--n-predict N) for the number of tokens to generate"),
    (&["--temperature"], "use --temp T"),
    (&["-ctk", "--cache-type-k", "-ctv", "--cache-type-v"], "use --kv TYPE for the type of the KV cache"),
    (&["-fa", "--flash-attn"], "attention is fused by default; --fusion off turns it off"),
    (&["--mmap", "--no-mmap", "--mlock"], "remove the flag: model files are always mapped"),
    (&["-hf", "--hf-repo", "-hff", "--hf-file", "-mu", "--model-url"], DOWNLOAD_TIP),
    (&["-sys", "--system-prompt"], "use `trueup chat --system TEXT`"),
    (&["-cnv", "--conversation", "-i", "--interactive"], "use `trueup chat MODEL`"),
    (&["--vocab-only", "--bigendian"], "remove the flag: trueup does not write such files"),
    (&["--mmproj"], "remove the flag: trueup does not support multimodal models"),
    (&["--allow-requantize"], "remove the flag: requantizing is allowed, with a note"),
    (&["--tensor-type"], "use --rule REGEX=TYPE"),
    (&["--nthreads"], "use -t N (--threads N)"),
];

const DOWNLOAD_TIP: &str =
    "download the model first, and pass its GGUF file, or convert its directory with `trueup convert`";

const DEVICE_TIP: &str = "use --device cuda to compute on a GPU, and --device-memory SIZE to limit its memory use";

/// Parses the command line; an error about a flag of llama.cpp ends with a tip.
pub fn parse() -> Arguments {
    let typed: Vec<String> = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    Arguments::try_parse().unwrap_or_else(|mut error| {
        if let Some(flag) = download_flag(&typed, &error) {
            let problem = format!("trueup does not download models: unexpected argument '{flag}'; {DOWNLOAD_TIP}");
            error = Arguments::command().error(ErrorKind::UnknownArgument, problem);
        } else if let Some(tip) = tip(&typed, &error) {
            error.remove(ContextKind::SuggestedArg);
            error.remove(ContextKind::SuggestedSubcommand);
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        }
        error.exit()
    })
}

/// The flag that downloads a model in llama.cpp, if clap read it as `-h` and showed the help.
fn download_flag<'a>(typed: &'a [String], error: &clap::Error) -> Option<&'a str> {
    let is_download = |argument: &&str| matches!(argument.split('=').next(), Some("-hf" | "-hff"));
    let argument = typed.iter().skip(1).map(String::as_str).take_while(|argument| *argument != "--").find(is_download);
    argument.filter(|_| error.kind() == ErrorKind::DisplayHelp)
}

/// What to use in place of what was typed; `None` for help, and for errors about flags of this program.
fn tip(typed: &[String], error: &clap::Error) -> Option<String> {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return None;
    }
    let invalid = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let mut words = typed.iter().skip(1).map(String::as_str).filter(|word| !matches!(*word, "-q" | "--quiet"));
    let (command, first) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if command == "doctor" && error.kind() == ErrorKind::InvalidSubcommand {
        return Some("use `trueup inspect MODEL --doctor`".to_owned());
    }
    let named_type = [invalid, first].into_iter().find(|word| is_type(word));
    if let Some(name) = named_type.filter(|_| command == "quantize" && error.kind() == ErrorKind::UnknownArgument) {
        let name = name.to_ascii_lowercase();
        return Some(match Scheme::from_name(&name).is_some_and(|scheme| scheme.is_written()) {
            true => format!("use --type TYPE: `trueup quantize INPUT OUTPUT --type {name}`"),
            false => format!("trueup cannot write {name}; use --type with {}", written_types()),
        });
    }
    let positional = |flag: &str, what: &str| (invalid == flag).then(|| what.to_owned());
    let known = Arguments::command().find_subcommand(command).map_or("run", |_| command);
    let without_flag = format!("pass the model without a flag: `trueup {known} MODEL`");
    positional("-m", &without_flag)
        .or_else(|| positional("--model", &without_flag))
        .or_else(|| typed.iter().skip(1).find_map(|argument| of_flag(argument)))
}

/// The names of the types that can be written: `f32, f16 or q8_0`.
fn written_types() -> String {
    let names: Vec<&str> = Scheme::written().map(|scheme| scheme.name()).collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// The tip for a flag of llama.cpp, with or without a value.
fn of_flag(argument: &str) -> Option<String> {
    let name = argument.split_once('=').map_or(argument, |(name, _)| name);
    let (_, tip) = FLAGS.iter().find(|(names, _)| names.contains(&name))?;
    Some((*tip).to_owned())
}

/// Whether a word is the name of a type, as llama-quantize takes it: in any case, K types with a size.
fn is_type(word: &str) -> bool {
    let lower = word.to_ascii_lowercase();
    let is_recipe = |text: &str| ["_k_s", "_k_m", "_k_l", "_k"].iter().any(|end| text.ends_with(end));
    Scheme::from_name(&lower).is_some()
        || DType::from_name(&lower).is_some()
        || lower.starts_with('q') && is_recipe(&lower)
}

#[cfg(test)]
mod tests {
    use super::{FLAGS, download_flag, tip};
    use crate::Arguments;
    use clap::{CommandFactory, Parser};

    fn tip_for(line: &str) -> Option<String> {
        let typed: Vec<String> = line.split(' ').map(str::to_owned).collect();
        tip(&typed, &Arguments::try_parse_from(&typed).err()?)
    }

    #[test]
    fn flags_of_llama_cpp_are_answered_with_flags_of_this_program() {
        for (line, part) in [
            ("trueup quantize in.gguf out.gguf q4_0", "`trueup quantize INPUT OUTPUT --type q4_0`"),
            ("trueup quantize in.gguf out.gguf Q8_0 8", "--type q8_0"),
            ("trueup -q quantize in.gguf out.gguf q4_0", "--type q4_0"),
            ("trueup quantize -q in.gguf out.gguf q4_0", "--type q4_0"),
            ("trueup quantize --quiet q4_0 in.gguf out.gguf", "--type q4_0"),
            ("trueup quantize in.gguf out.gguf q4_0 -q", "--type q4_0"),
            ("trueup -q bench -m model.gguf", "`trueup bench MODEL`"),
            ("trueup --quiet doctor model.gguf", "use `trueup inspect MODEL --doctor`"),
            ("trueup quantize q4_0 in.gguf out.gguf", "--type q4_0"),
            ("trueup quantize in.gguf out.gguf Q4_K_M", "--type q4_k_m"),
            ("trueup quantize in.gguf out.gguf IQ2_XXS", "trueup cannot write iq2_xxs; use --type with "),
            ("trueup convert model --outtype f16 --outfile out.gguf", "--type TYPE"),
            ("trueup convert model out.gguf --outtype=f16", "--type TYPE"),
            ("trueup convert model --outfile out.gguf", "`trueup convert SOURCE OUTPUT`"),
            ("trueup run model.gguf -p Hi -ngl 99", "--device cuda"),
            ("trueup run model.gguf -p Hi --n-gpu-layers 99", "--device cuda"),
            ("trueup run -m model.gguf -p Hi", "pass the model without a flag: `trueup run MODEL`"),
            ("trueup bench -m model.gguf", "pass the model without a flag: `trueup bench MODEL`"),
            ("trueup run model.gguf --mmproj f", "does not support multimodal models"),
            ("trueup run model.gguf -p Hi --temperature 0", "--temp"),
            ("trueup run model.gguf -p Hi --cache-type-k q8_0", "--kv TYPE"),
            ("trueup doctor model.gguf", "use `trueup inspect MODEL --doctor`"),
        ] {
            assert!(tip_for(line).is_some_and(|tip| tip.contains(part)), "{line}: {:?}", tip_for(line));
        }
        for line in [
            "trueup run model.gguf -p Hi",
            "trueup --help",
            "trueup run",
            "trueup run m.gguf --nonsense",
            "trueup quantize a b c",
            "trueup nonsense",
        ] {
            assert_eq!(tip_for(line), None, "{line}");
        }
    }

    #[test]
    fn flags_that_download_are_not_read_as_help() {
        for (line, flag) in [
            ("trueup run m.gguf -p hi -hf a/b", Some("-hf")),
            ("trueup run -hff model.gguf", Some("-hff")),
            ("trueup run m.gguf -h", None),
            ("trueup run m.gguf -p hi", None),
        ] {
            let typed: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let error = Arguments::try_parse_from(&typed).err();
            assert_eq!(error.and_then(|error| download_flag(&typed, &error)), flag, "{line}");
        }
    }

    /// A flag that this program has needs no tip, and every flag that a tip names exists.
    #[test]
    fn tips_name_flags_that_exist() {
        let root = Arguments::command();
        let longs: Vec<String> = root
            .get_subcommands()
            .flat_map(|command| {
                command.get_arguments().filter_map(|flag| flag.get_long()).map(|long| format!("--{long}"))
            })
            .collect();
        for (names, tip) in FLAGS {
            assert!(names.iter().all(|name| !longs.iter().any(|long| long == name)), "{names:?}");
            let words = tip.split(|c: char| !c.is_ascii_lowercase() && c != '-').filter(|word| word.starts_with("--"));
            words.for_each(|word| assert!(longs.iter().any(|long| long == word), "{word} in {tip}"));
        }
    }
}
