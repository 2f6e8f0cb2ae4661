//! The names that GGUF gives to pre-tokenizers (`tokenizer.ggml.pre`), and the rule of each name.
//!
//! The names are those of llama.cpp. The rule of a name is the pre-tokenizer in the `tokenizer.json` of its models. If
//! that is not known, it is llama.cpp's rule. llama.cpp approximates some of the published rules:
//! `tests/integration/pre_tokenizer_names.rs` compares every name with llama.cpp and lists the differences.
//!
//! Conversion finds a name by comparing the pre-tokenizer of the model with this table, never by encoding sample texts.
//! If several names have one rule, it writes the first.

use crate::normalizer::Normalizer;
use crate::pattern::{Behavior, Pattern};
use crate::pre_tokenizer::{GPT2_PATTERN, PreTokenizer};

/// One name.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The value of `tokenizer.ggml.pre`.
    pub name: &'static str,
    /// How text is split into words.
    rule: &'static Rule,
    /// Whether a word that is a token stays whole, whatever the merges say.
    pub ignore_merges: bool,
    /// Whether conversion may write the name.
    is_written: bool,
    /// Whether a text begins with the bos token.
    pub bos: Bos,
}

/// Whether a text begins with the bos token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bos {
    /// Only if the file says so.
    IfSet,
    /// Unless the file says otherwise.
    ByDefault,
    /// Whatever the file says.
    Always,
}

/// A rule that one or several names share.
#[derive(Debug)]
struct Rule {
    /// The steps, in order.
    steps: &'static [Cut],
    /// What the tokens are made of.
    alphabet: Alphabet,
}

/// What the tokens of a vocabulary are made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Alphabet {
    /// Bytes in the printable alphabet.
    Bytes,
    /// Characters. A character that is not a token becomes byte tokens such as `<0x0A>`.
    Characters,
    /// Characters, with `▁` for a space.
    MarkedCharacters,
}

/// One step of a rule.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// Each match of a pattern is a piece.
    Isolated(&'static str),
    /// Digits.
    Digits { individual: bool },
    /// Punctuation.
    Punctuation(Behavior),
    /// The pattern of GPT-2. The steps that follow see bytes in the printable alphabet.
    Gpt2,
    /// Words and runs of punctuation, without the white space between them.
    Words,
}

/// The pattern of Llama 3.
const LLAMA3_PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The pattern of Qwen 2.
const QWEN2_PATTERN: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The pattern of Qwen 3.5: like Qwen 2, but a word may hold combining marks.
const QWEN35_PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The pattern of Ufakzeka: like Qwen 2, but without English contractions.
const UFAKZEKA_PATTERN: &str = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The pattern of Jais 2: like Llama 3, but long runs of white space are split at powers of two.
const JAIS2_PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}";
/// The pattern of MiniCPM 5, applied after numbers are split into groups of three.
const MINICPM5_PATTERN: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The pattern of Seed-Coder.
const SEED_CODER_PATTERN: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The pattern of Bailing MoE.
const BAILING_MOE_PATTERN: &str =
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
/// The pattern of EXAONE MoE: a run of words is one piece.
const EXAONE_MOE_PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+";
/// The pattern of Mistral's Tekken.
const TEKKEN_PATTERN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The pattern of GPT-4o.
const GPT4O_PATTERN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The pattern of Youtu: like GPT-4o, but each digit is one piece.
const YOUTU_PATTERN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The pattern of Kimi K2: like GPT-4o, but a run of Han characters is one piece.
const KIMI_K2_PATTERN: &str = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Letters with case as DeepSeek LLM lists them. Escapes stand for characters that composition would change.
const DEEPSEEK_LETTERS: &str = "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u{1f7d}ᾀ-ᾴᾶ-ᾼ\u{1fbe}ῂ-ῄῆ-ῌῐ-\u{1fd3}ῖ-\u{1fdb}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u{2126}ℨ\u{212a}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
/// Words and punctuation of DeepSeek V3.
const DEEPSEEK3_REST: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
/// Words and punctuation of Spark 2.5: like DeepSeek V3, but each line break is one piece.
const SPARK_REST: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"##;
/// Han characters, hiragana and katakana of DeepSeek V3.
const HAN_AND_KANA: &str = "[一-龥぀-ゟ゠-ヿ]+";
/// Han characters and hangul of DeepSeek's first models.
const HAN_AND_HANGUL: &str = "[一-龥ࠀ-一가-\u{d7ff}]+";
/// Words of Bloom.
const BLOOM_WORDS: &str = r" ?[^(\s|[.,!?…。，、।۔،])]+";
/// Groups of three digits from the right. As in llama.cpp, the first group includes the text before the number, which
/// the next step splits.
const GROUPS_FROM_RIGHT: &str = r"\P{N}*\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))";
/// Lines and line breaks.
const LINES: &str = r"[^\n]+|[\n]+";
/// Patterns whose matches cover every text. It makes no difference whether what lies between the matches is kept, or
/// removed, as in vocabularies that were converted from tiktoken.
const COMPLETE_PATTERNS: &[&str] = &[LLAMA3_PATTERN, QWEN2_PATTERN, TEKKEN_PATTERN, GPT4O_PATTERN];
/// Each digit is one piece.
const EACH_DIGIT: Cut = Cut::Digits { individual: true };

/// The rule that llama.cpp calls `default`: punctuation, GPT-2's pattern, numbers in groups of three.
const DEFAULT_RULE: Rule = bytes(&[
    Cut::Isolated(r"[\p{P}\$\+<=>\^~\|]+"),
    Cut::Isolated(GPT2_PATTERN),
    Cut::Isolated(r"\p{N}+"),
    Cut::Isolated("[0-9][0-9][0-9]"),
]);
const LLAMA3: Rule = bytes(&[Cut::Isolated(LLAMA3_PATTERN)]);
const QWEN2: Rule = bytes(&[Cut::Isolated(QWEN2_PATTERN)]);
const QWEN35: Rule = bytes(&[Cut::Isolated(QWEN35_PATTERN)]);
const UFAKZEKA: Rule = bytes(&[Cut::Isolated(UFAKZEKA_PATTERN)]);
const JAIS2: Rule = bytes(&[Cut::Isolated(JAIS2_PATTERN)]);
const MINICPM5: Rule = bytes(&[Cut::Isolated(r"\p{N}{1,3}"), Cut::Isolated(MINICPM5_PATTERN)]);
const SEED_CODER: Rule = bytes(&[Cut::Isolated(SEED_CODER_PATTERN)]);
const BAILING_MOE: Rule = bytes(&[Cut::Isolated(BAILING_MOE_PATTERN)]);
const EXAONE_MOE: Rule = bytes(&[Cut::Isolated(EXAONE_MOE_PATTERN)]);
const TEKKEN: Rule = bytes(&[Cut::Isolated(TEKKEN_PATTERN)]);
const GPT4O: Rule = bytes(&[Cut::Isolated(GPT4O_PATTERN)]);
const YOUTU: Rule = bytes(&[
    Cut::Isolated("[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+"),
    Cut::Isolated(YOUTU_PATTERN),
]);
const KIMI_K2: Rule = bytes(&[Cut::Isolated(KIMI_K2_PATTERN)]);
const TINY_AYA: Rule = bytes(&[Cut::Isolated(r"\d{1,3}(?=(?:\d{3})*\b)"), Cut::Isolated(GPT4O_PATTERN)]);
const GPT2: Rule = bytes(&[Cut::Gpt2]);
const STARCODER: Rule = bytes(&[EACH_DIGIT, Cut::Gpt2]);
const FALCON: Rule = bytes(&[
    Cut::Punctuation(Behavior::Contiguous),
    Cut::Gpt2,
    Cut::Digits { individual: false },
    Cut::Isolated("[0-9][0-9][0-9]"),
]);
const CHAMELEON: Rule = bytes(&[
    Cut::Isolated("<sentinel:[0-9]+>"),
    Cut::Isolated("(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"),
    Cut::Isolated("([\t\n]|    |  )"),
    EACH_DIGIT,
    Cut::Punctuation(Behavior::Isolated),
    Cut::Gpt2,
]);
const DEEPSEEK_LLM: Rule = bytes(&[
    Cut::Isolated("[\r\n]"),
    Cut::Isolated(DEEPSEEK_LETTERS),
    Cut::Isolated(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"),
    Cut::Isolated(r"\s+$"),
    Cut::Isolated(HAN_AND_HANGUL),
    EACH_DIGIT,
]);
const DEEPSEEK_CODER: Rule = bytes(&[
    Cut::Isolated("[\r\n]"),
    Cut::Isolated(r"\s?\p{L}+"),
    Cut::Isolated(r"\s?\p{P}+"),
    Cut::Isolated(HAN_AND_HANGUL),
    EACH_DIGIT,
]);
const DEEPSEEK3: Rule =
    bytes(&[Cut::Isolated(r"\p{N}{1,3}"), Cut::Isolated(HAN_AND_KANA), Cut::Isolated(DEEPSEEK3_REST)]);
const SPARK: Rule = bytes(&[
    Cut::Isolated(r"\p{N}{1,3}"),
    Cut::Isolated(HAN_AND_KANA),
    Cut::Isolated(SPARK_REST),
    Cut::Isolated(r"\p{N}"),
]);
const AFMOE: Rule = bytes(&[
    Cut::Isolated(GROUPS_FROM_RIGHT),
    Cut::Isolated("[一-鿿㐀-䶿豈-\u{faff}぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿\u{e80}-\u{eff}ក-៿က-႟ꩠ-ꩿꧠ-\u{a9ff}가-\u{d7af}ᄀ-ᇿ]+"),
    Cut::Isolated(DEEPSEEK3_REST),
]);
const BLOOM: Rule = bytes(&[Cut::Isolated(BLOOM_WORDS)]);
const VIKING: Rule = bytes(&[Cut::Isolated(BLOOM_WORDS), EACH_DIGIT]);
const SUPERBPE: Rule = bytes(&[Cut::Isolated(r"\p{N}+"), Cut::Isolated(r"(?=(\d{3})+(?!\d))")]);
const LAGUNA: Rule = bytes(&[Cut::Isolated(LINES), Cut::Isolated(QWEN2_PATTERN)]);
const LINES_OF_CHARACTERS: Rule = Rule { steps: &[Cut::Isolated(LINES)], alphabet: Alphabet::MarkedCharacters };
const WORDS_OF_CHARACTERS: Rule = Rule { steps: &[Cut::Words], alphabet: Alphabet::Characters };

/// The entry of a file without a name.
pub const DEFAULT: Known = name("default", &DEFAULT_RULE);

/// All names. Of the names with one rule, the one that conversion writes comes first.
#[rustfmt::skip]
pub const ALL: &[Known] = &[
    DEFAULT,
    name("llama-bpe", &LLAMA3).whole().bos(Bos::ByDefault),
    name("llama3", &LLAMA3).whole().bos(Bos::ByDefault),
    name("llama-v3", &LLAMA3).whole().bos(Bos::ByDefault),
    name("falcon3", &LLAMA3).whole().bos(Bos::ByDefault),
    name("falcon-h1", &LLAMA3).whole().bos(Bos::ByDefault),
    name("pixtral", &LLAMA3).whole().bos(Bos::ByDefault),
    name("midm-2.0", &LLAMA3).whole().bos(Bos::ByDefault),
    name("lfm2", &LLAMA3).whole().bos(Bos::ByDefault),
    name("jina-v5-nano", &LLAMA3).whole().bos(Bos::ByDefault),
    name("dbrx", &LLAMA3),
    name("smaug-bpe", &LLAMA3),
    name("chatglm-bpe", &LLAMA3),
    name("glm4", &LLAMA3).whole(),
    name("glm5", &LLAMA3).whole(),
    name("qwen2", &QWEN2),
    name("deepseek-r1-qwen", &QWEN2),
    name("stablelm2", &QWEN2),
    name("hunyuan", &QWEN2),
    name("megrez", &QWEN2),
    name("kormo", &QWEN2),
    name("f2llmv2", &QWEN2),
    name("solar-open", &QWEN2),
    name("grok-2", &QWEN2),
    name("qwen35", &QWEN35),
    name("ufakzeka", &UFAKZEKA),
    name("laguna", &LAGUNA),
    name("jais-2", &JAIS2),
    name("minicpm5", &MINICPM5).whole(),
    name("seed-coder", &SEED_CODER),
    name("bailingmoe", &BAILING_MOE),
    name("bailingmoe2", &BAILING_MOE),
    name("llada-moe", &BAILING_MOE),
    name("exaone-moe", &EXAONE_MOE),
    name("tekken", &TEKKEN).whole().bos(Bos::ByDefault),
    name("gpt-4o", &GPT4O),
    name("llama4", &GPT4O),
    name("kanana2", &GPT4O),
    name("talkie", &GPT4O),
    name("minimax-m2", &GPT4O),
    // llama.cpp versions of 2025 refuse this name. They read `gpt-4o`, which gives the same ids if merges lead to every
    // token, as they do in vocabularies made from byte ranks.
    name("granite-embed-multi-97m", &GPT4O).whole().only_read(),
    name("youtu", &YOUTU).whole(),
    name("kimi-k2", &KIMI_K2),
    name("tiny_aya", &TINY_AYA),
    name("cohere2moe", &TINY_AYA),
    name("gpt-2", &GPT2),
    name("phi-2", &GPT2),
    name("mpt", &GPT2),
    name("olmo", &GPT2),
    name("jais", &GPT2),
    name("roberta-bpe", &GPT2),
    name("gigachat", &GPT2),
    name("jina-v2-code", &GPT2),
    name("trillion", &GPT2),
    name("jina-v1-en", &GPT2),
    name("jina-es", &GPT2),
    name("jina-de", &GPT2),
    name("jina-v2-es", &GPT2),
    name("jina-v2-de", &GPT2),
    name("a.x-4.0", &GPT2),
    name("mellum", &GPT2),
    name("modern-bert", &GPT2),
    name("exaone4", &GPT2),
    name("granite-docling", &GPT2),
    name("starcoder", &STARCODER),
    name("refact", &STARCODER),
    name("command-r", &STARCODER),
    name("smollm", &STARCODER),
    name("codeshell", &STARCODER),
    name("exaone", &STARCODER),
    name("minerva-7b", &STARCODER),
    name("mellum2", &STARCODER),
    name("falcon", &FALCON),
    name("chameleon", &CHAMELEON).bos(Bos::ByDefault),
    name("deepseek-llm", &DEEPSEEK_LLM),
    name("deepseek-coder", &DEEPSEEK_CODER),
    name("deepseek-v3", &DEEPSEEK3),
    name("hunyuan-dense", &DEEPSEEK3),
    name("joyai-llm", &DEEPSEEK3),
    name("hy_v4", &DEEPSEEK3),
    name("spark2_5", &SPARK),
    name("afmoe", &AFMOE),
    name("bloom", &BLOOM),
    name("gpt3-finnish", &BLOOM),
    name("poro-chat", &BLOOM),
    name("viking", &VIKING),
    name("superbpe", &SUPERBPE),
    name("gemma4", &LINES_OF_CHARACTERS).bos(Bos::Always),
    name("granite-embed-multi-311m", &LINES_OF_CHARACTERS).bos(Bos::Always),
    name("sarvam-moe", &LINES_OF_CHARACTERS),
    name("whitespace", &WORDS_OF_CHARACTERS),
];

const fn bytes(steps: &'static [Cut]) -> Rule {
    Rule { steps, alphabet: Alphabet::Bytes }
}

const fn name(name: &'static str, rule: &'static Rule) -> Known {
    Known { name, rule, ignore_merges: false, is_written: true, bos: Bos::IfSet }
}

impl Known {
    const fn whole(self) -> Known {
        Known { ignore_merges: true, ..self }
    }

    const fn only_read(self) -> Known {
        Known { is_written: false, ..self }
    }

    const fn bos(self, bos: Bos) -> Known {
        Known { bos, ..self }
    }

    /// The rule as `tokenizer.json` would describe it.
    pub fn pre_tokenizer(&self) -> PreTokenizer {
        let mut steps: Vec<PreTokenizer> = self.rule.steps.iter().map(Cut::pre_tokenizer).collect();
        if self.is_byte_level() && !self.rule.steps.iter().any(|cut| matches!(cut, Cut::Gpt2)) {
            steps.push(PreTokenizer::ByteLevel { add_prefix_space: false, use_regex: false });
        }
        sequence(steps)
    }

    /// What happens to a text before it is split.
    pub fn normalizer(&self) -> Option<Normalizer> {
        (self.rule.alphabet == Alphabet::MarkedCharacters)
            .then(|| Normalizer::Replace { pattern: Pattern::String(" ".to_owned()), content: "▁".to_owned() })
    }

    /// Whether tokens are bytes in the printable alphabet.
    pub fn is_byte_level(&self) -> bool {
        self.rule.alphabet == Alphabet::Bytes
    }

    /// Whether two names split text in the same way.
    pub(crate) fn splits_like(&self, other: &Known) -> bool {
        self.pre_tokenizer() == other.pre_tokenizer()
    }
}

impl Cut {
    fn pre_tokenizer(&self) -> PreTokenizer {
        match self {
            Cut::Isolated(pattern) => isolated(pattern),
            Cut::Digits { individual } => PreTokenizer::Digits { individual_digits: *individual },
            Cut::Punctuation(behavior) => PreTokenizer::Punctuation { behavior: *behavior },
            Cut::Gpt2 => PreTokenizer::ByteLevel { add_prefix_space: false, use_regex: true },
            Cut::Words => PreTokenizer::Whitespace,
        }
    }
}

/// Each match of a pattern is a piece.
fn isolated(pattern: &str) -> PreTokenizer {
    PreTokenizer::Split { pattern: Pattern::Regex(pattern.to_owned()), behavior: Behavior::Isolated, invert: false }
}

/// A sequence of steps; a single step stays as it is.
fn sequence(mut steps: Vec<PreTokenizer>) -> PreTokenizer {
    match (steps.pop(), steps.is_empty()) {
        (Some(only), true) => only,
        (last, _) => {
            steps.extend(last);
            PreTokenizer::Sequence { pretokenizers: steps }
        }
    }
}

/// Replaces nested sequences by one and writes splits in one form, so that two descriptions of one rule compare equal.
fn flat(pre_tokenizer: &PreTokenizer) -> PreTokenizer {
    let mut steps = Vec::new();
    let mut waiting = vec![pre_tokenizer];
    while let Some(next) = waiting.pop() {
        match next {
            PreTokenizer::Sequence { pretokenizers } => waiting.extend(pretokenizers.iter().rev()),
            PreTokenizer::Split { pattern: Pattern::Regex(pattern), behavior: Behavior::Removed, invert: true }
                if COMPLETE_PATTERNS.contains(&pattern.as_str()) =>
            {
                steps.push(isolated(pattern));
            }
            other => steps.push(other.clone()),
        }
    }
    sequence(steps)
}

/// Whether two descriptions are of one rule.
pub(crate) fn is_same_rule(one: Option<&PreTokenizer>, other: Option<&PreTokenizer>) -> bool {
    one.map(flat) == other.map(flat)
}

/// The entry of a name.
pub fn by_name(name: &str) -> Option<&'static Known> {
    ALL.iter().find(|known| known.name == name)
}

/// The entry to write for a pre-tokenizer. If entries differ only in `ignore_merges`, one with the given value is
/// preferred.
pub fn by_pre_tokenizer(pre_tokenizer: &PreTokenizer, ignore_merges: bool) -> Option<&'static Known> {
    let flat = flat(pre_tokenizer);
    let is_equal = |known: &&Known| known.is_written && known.pre_tokenizer() == flat;
    let mut equal = ALL.iter().filter(is_equal).collect::<Vec<_>>();
    equal.sort_by_key(|known| known.ignore_merges != ignore_merges);
    equal.first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lead_back() {
        let mut names: Vec<&str> = ALL.iter().map(|known| known.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        for known in ALL {
            let found = by_pre_tokenizer(&known.pre_tokenizer(), known.ignore_merges).unwrap();
            assert!(found.splits_like(known), "{} {}", found.name, known.name);
            assert!(found.ignore_merges == known.ignore_merges || !known.is_written, "{}", known.name);
            let mut budget = crate::pattern::CompileBudget::default();
            crate::pre_tokenizer::compile(Some(&known.pre_tokenizer()), &mut budget).unwrap();
        }
    }

    /// A character that no match covers would be lost.
    #[test]
    fn complete_patterns_cover_every_character() {
        for pattern in COMPLETE_PATTERNS {
            let pattern = fancy_regex::Regex::new(&format!("^(?:{pattern})$")).unwrap();
            let lost = ('\0'..='\u{ffff}').find(|character| !pattern.is_match(&character.to_string()).unwrap());
            assert_eq!(lost, None, "{pattern}");
        }
    }

    /// Vocabularies that transformers converts from tiktoken ignore merges, also those with the pattern of GPT-4o.
    #[test]
    fn the_most_widely_read_name_is_written() {
        for (rule, ignore_merges, expected) in [
            (&GPT4O, true, "gpt-4o"),
            (&GPT4O, false, "gpt-4o"),
            (&LLAMA3, true, "llama-bpe"),
            (&LLAMA3, false, "dbrx"),
            (&QWEN2, false, "qwen2"),
            (&GPT2, false, "gpt-2"),
            (&DEEPSEEK3, false, "deepseek-v3"),
            (&STARCODER, false, "starcoder"),
        ] {
            let found = by_pre_tokenizer(&name("", rule).pre_tokenizer(), ignore_merges).unwrap();
            assert_eq!(found.name, expected);
        }
    }
}
