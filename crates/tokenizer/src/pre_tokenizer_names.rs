//! The names that GGUF gives to pre-tokenizers (`tokenizer.ggml.pre`), each with what it stands for.
//!
//! A name is found by comparing the description in the model's own file with this table, never by trying out texts.
//! Where the table has several names for one description, the first is written and all are read.

use crate::pattern::{Behavior, Pattern};
use crate::pre_tokenizer::{GPT2_PATTERN, PreTokenizer};

/// One description and its names.
pub struct Known {
    /// All names; the first is the one to write.
    pub names: &'static [&'static str],
    /// Steps before the bytes are written as characters.
    steps: &'static [Cut],
    /// Whether GPT-2's own cutting comes last.
    then_gpt2: bool,
    /// Whether words that are tokens stay whole.
    pub ignore_merges: bool,
    /// Whether texts begin with bos when the file does not say.
    pub adds_bos: bool,
}

/// One way to cut.
#[derive(Clone, Copy)]
enum Cut {
    /// Matches of a pattern are pieces of their own.
    Isolated(&'static str),
    /// Digits.
    Digits { individual: bool },
    /// Runs of punctuation.
    Punctuation,
    /// GPT-2's cutting with the bytes written as characters, before the steps that follow.
    Gpt2,
}

/// The pattern of Llama 3.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The pattern of Qwen 2.
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The pattern of Mistral's Tekken.
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The pattern of GPT-4o.
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Letters with case as DeepSeek LLM lists them. Escapes stand for characters that composition would change.
const DEEPSEEK_LETTERS: &str = "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u{1f7d}ᾀ-ᾴᾶ-ᾼ\u{1fbe}ῂ-ῄῆ-ῌῐ-\u{1fd3}ῖ-\u{1fdb}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u{2126}ℨ\u{212a}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
/// Letters and signs as DeepSeek V3 has them.
const DEEPSEEK3_REST: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;

/// What the name `default` stands for in programs that read it: punctuation, GPT-2's cutting, numbers in threes.
pub const DEFAULT: Known = known(
    &["default"],
    &[
        Cut::Isolated(r"[\p{P}\$\+<=>\^~\|]+"),
        Cut::Isolated(GPT2_PATTERN),
        Cut::Isolated(r"\p{N}+"),
        Cut::Isolated("[0-9][0-9][0-9]"),
    ],
    false,
);

/// All descriptions.
pub const ALL: [Known; 14] = [
    Known {
        ignore_merges: true,
        adds_bos: true,
        ..known(&["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1"], &[Cut::Isolated(LLAMA3)], false)
    },
    known(&["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"], &[Cut::Isolated(LLAMA3)], false),
    known(&["qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez"], &[Cut::Isolated(QWEN2)], false),
    known(&["gpt-2", "phi-2", "mpt", "olmo", "jais", "roberta-bpe", "gigachat", "jina-v2-code", "trillion"], &[], true),
    known(
        &["starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b"],
        &[Cut::Digits { individual: true }],
        true,
    ),
    known(
        &["falcon"],
        &[Cut::Punctuation, Cut::Gpt2, Cut::Digits { individual: false }, Cut::Isolated("[0-9][0-9][0-9]")],
        false,
    ),
    known(
        &["deepseek-llm"],
        &[
            Cut::Isolated("[\r\n]"),
            Cut::Isolated(DEEPSEEK_LETTERS),
            Cut::Isolated(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"),
            Cut::Isolated(r"\s+$"),
            Cut::Isolated("[一-龥ࠀ-一가-\u{d7ff}]+"),
            Cut::Digits { individual: true },
        ],
        false,
    ),
    known(
        &["deepseek-coder"],
        &[
            Cut::Isolated("[\r\n]"),
            Cut::Isolated(r"\s?\p{L}+"),
            Cut::Isolated(r"\s?\p{P}+"),
            Cut::Isolated("[一-龥ࠀ-一가-\u{d7ff}]+"),
            Cut::Digits { individual: true },
        ],
        false,
    ),
    known(
        &["deepseek-v3"],
        &[Cut::Isolated(r"\p{N}{1,3}"), Cut::Isolated("[一-龥぀-ゟ゠-ヿ]+"), Cut::Isolated(DEEPSEEK3_REST)],
        false,
    ),
    known(&["bloom", "gpt3-finnish", "poro-chat"], &[Cut::Isolated(r" ?[^(\s|[.,!?…。，、।۔،])]+")], false),
    Known { ignore_merges: true, adds_bos: true, ..known(&["tekken"], &[Cut::Isolated(TEKKEN)], false) },
    known(&["gpt-4o", "llama4"], &[Cut::Isolated(GPT4O)], false),
    known(&["viking"], &[Cut::Isolated(r" ?[^(\s|[.,!?…。，、।۔،])]+"), Cut::Digits { individual: true }], false),
    DEFAULT,
];

const fn known(names: &'static [&'static str], steps: &'static [Cut], then_gpt2: bool) -> Known {
    Known { names, steps, then_gpt2, ignore_merges: false, adds_bos: false }
}

impl Known {
    /// The description in the words of `tokenizer.json`.
    pub fn pre_tokenizer(&self) -> PreTokenizer {
        let bytes = |use_regex| PreTokenizer::ByteLevel { add_prefix_space: false, use_regex };
        let mut pretokenizers: Vec<PreTokenizer> = self.steps.iter().map(|cut| cut.pre_tokenizer()).collect();
        if self.then_gpt2 || !self.steps.iter().any(|cut| matches!(cut, Cut::Gpt2)) {
            pretokenizers.push(bytes(self.then_gpt2));
        }
        sequence(pretokenizers)
    }
}

impl Cut {
    fn pre_tokenizer(&self) -> PreTokenizer {
        match self {
            Cut::Isolated(pattern) => PreTokenizer::Split {
                pattern: Pattern::Regex((*pattern).to_owned()),
                behavior: Behavior::Isolated,
                invert: false,
            },
            Cut::Digits { individual } => PreTokenizer::Digits { individual_digits: *individual },
            Cut::Punctuation => PreTokenizer::Punctuation { behavior: Behavior::Contiguous },
            Cut::Gpt2 => PreTokenizer::ByteLevel { add_prefix_space: false, use_regex: true },
        }
    }
}

/// One step stands for itself, several for a sequence.
fn sequence(mut steps: Vec<PreTokenizer>) -> PreTokenizer {
    match (steps.pop(), steps.is_empty()) {
        (Some(only), true) => only,
        (last, _) => {
            steps.extend(last);
            PreTokenizer::Sequence { pretokenizers: steps }
        }
    }
}

/// The same with sequences within sequences taken apart, so that two ways to write one thing compare equal.
fn flat(pre_tokenizer: &PreTokenizer) -> PreTokenizer {
    let mut steps = Vec::new();
    let mut waiting = vec![pre_tokenizer];
    while let Some(next) = waiting.pop() {
        match next {
            PreTokenizer::Sequence { pretokenizers } => waiting.extend(pretokenizers.iter().rev()),
            other => steps.push(other.clone()),
        }
    }
    sequence(steps)
}

/// The description of a name.
pub fn by_name(name: &str) -> Option<&'static Known> {
    ALL.iter().find(|known| known.names.contains(&name))
}

/// The description that a pre-tokenizer equals; of two that differ only in `ignore_merges` the one that has it right.
pub fn by_pre_tokenizer(pre_tokenizer: &PreTokenizer, ignore_merges: bool) -> Option<&'static Known> {
    let flat = flat(pre_tokenizer);
    let mut equal = ALL.iter().filter(|known| known.pre_tokenizer() == flat).collect::<Vec<_>>();
    equal.sort_by_key(|known| known.ignore_merges != ignore_merges);
    equal.first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lead_back() {
        let mut names: Vec<&str> = ALL.iter().flat_map(|known| known.names).copied().collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        for known in &ALL {
            let found = by_pre_tokenizer(&known.pre_tokenizer(), known.ignore_merges).unwrap();
            assert_eq!(found.names[0], known.names[0]);
            let mut budget = crate::pattern::CompileBudget::default();
            crate::pre_tokenizer::compile(Some(&known.pre_tokenizer()), &mut budget).unwrap();
        }
    }
}
