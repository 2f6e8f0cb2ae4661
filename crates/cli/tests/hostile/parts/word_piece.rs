//! WordPiece vocabularies: `tokenizer.json`, `vocab.txt`, and GGUF keys of BERT.

use super::Change::{Bytes, Config, Cut, File, Item, Json, Key, Line, NoJson, NoKey};
use super::Given::{Array, Bool, F32, F32s, I32, I32s, Text, U32, U32s};
use super::{Part, Row};
use crate::case::Call;
use crate::gguf_parts as gguf;

pub const PART: Part =
    Part { name: "WordPiece vocabularies", files: FILES, folders: FOLDERS, calls: &[Call::Tokenize, Call::Embed] };

const BERT: &str = "encoders/bert";
/// Its only vocabulary is `vocab.txt`: 400 lines for 400 embedding rows.
const CASED: &str = "encoders/bert-cased";

const JSON: &str = "tokenizer.json";
const LINES: &str = "vocab.txt";
const CONFIG: &str = "tokenizer_config.json";
const POINTER: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 1708\n";

const MODEL: &str = "tokenizer.ggml.model";
const TOKENS: &str = "tokenizer.ggml.tokens";
const SCORES: &str = "tokenizer.ggml.scores";
const TYPES: &str = "tokenizer.ggml.token_type";
const UNKNOWN: &str = "tokenizer.ggml.unknown_token_id";
const CLS: &str = "tokenizer.ggml.cls_token_id";
const MERGING: &str = "trueup.tokenizer.merging";
const NORMALIZER: &str = "trueup.tokenizer.normalizer";
const ADDED: &str = "trueup.tokenizer.added_tokens";

/// More bytes than a special token may have.
const LONG: &[u8] = &[b'x'; 5000];
const LONG_TEXT: &str = match std::str::from_utf8(LONG) {
    Ok(text) => text,
    Err(_) => panic!(),
};

const FILES: &[Row] = &[
    (BERT, NoKey(MODEL), "key tokenizer.ggml.model: expected a"),
    (
        BERT,
        Key(MODEL, Text("wordpiece")),
        "tokenizer.ggml.model: expected a tokenizer of type llama, t5, gpt2, gemma4,",
    ),
    (BERT, Key(MODEL, Bool(true)), "key tokenizer.ggml.model: expected a string, found bool true"),
    (BERT, Key(MODEL, Text("gpt2")), "key tokenizer.ggml.merges: expected an array of strings, found no such key"),
    (BERT, Key(MODEL, Text("llama")), "tokenizer: expected scores, which are needed to encode text, found none"),
    (BERT, Key(MODEL, Text("t5")), "key tokenizer.ggml.scores: expected an array of f32, found no such key"),
    (BERT, NoKey(TOKENS), "key tokenizer.ggml.tokens: expected an array of strings, found no such key"),
    (BERT, Key(TOKENS, Array(gguf::STRING, u64::MAX, b"")), "expected 18446744073709551615 items of at least 8 bytes"),
    (
        BERT,
        Key(TOKENS, Array(gguf::ARRAY, 400, b"")),
        "tokenizer.ggml.tokens, item 0 at byte 815: expected a value type",
    ),
    (BERT, Item(TOKENS, 1, Text(LONG_TEXT)), "added token 1: expected 1 to 4096 bytes of text, found 5000"),
    (BERT, Key(TYPES, I32s(&[])), "tokenizer.ggml.token_type: expected 400 entries, one per token, found 0"),
    (BERT, Key(TYPES, I32s(&[3, 3, 3])), "tokenizer.ggml.token_type: expected 400 entries, one per token, found 3"),
    (BERT, Key(TYPES, F32s(&[3.0])), "key tokenizer.ggml.token_type: expected an array of i32, found array of f32"),
    (BERT, Key(TYPES, Array(gguf::I32, 1 << 40, b"")), "expected 1099511627776 items of at least 4 bytes, found"),
    (BERT, Item(TYPES, 9, I32(0)), "tokenizer.ggml.token_type: expected a type from 1 to 6 for token 9, found 0"),
    (BERT, Item(TYPES, 399, I32(99)), "tokenizer.ggml.token_type: expected a type from 1 to 6 for token 399, found 99"),
    (BERT, Item(TYPES, 1, I32(i32::MIN)), "expected a type from 1 to 6 for token 1, found -2147483648"),
    (BERT, Key(SCORES, F32s(&[0.5])), "tokenizer.ggml.scores: expected 400 entries, one per token, found 1"),
    (BERT, Key(SCORES, I32s(&[0])), "key tokenizer.ggml.scores: expected an array of f32, found array of i32"),
    (BERT, Key(UNKNOWN, U32(400)), "tokenizer.ggml.unknown_token_id: expected a token ID from 0 to 399, found 400"),
    (BERT, Key(UNKNOWN, I32(-2)), "unknown_token_id: expected a non-negative integer, found i32 -2"),
    (BERT, Key(UNKNOWN, F32(1.0)), "unknown_token_id: expected a non-negative integer, found f32 1"),
    (BERT, Key("tokenizer.ggml.bos_token_id", U32(400)), "bos_token_id: expected a token ID from 0 to 399, found 400"),
    (BERT, Key("tokenizer.ggml.bos_token_id", Text("[CLS]")), "bos_token_id: expected a non-negative integer, found"),
    (BERT, Key(CLS, U32(400)), "key tokenizer.ggml.cls_token_id: expected the id of one of 400 tokens, found 400"),
    (BERT, Key(CLS, I32(-1)), "key tokenizer.ggml.cls_token_id: expected a non-negative integer, found i32 -1"),
    (BERT, Key(CLS, Text("[CLS]")), "key tokenizer.ggml.cls_token_id: expected a non-negative integer, found string"),
    (BERT, Key("tokenizer.ggml.mask_token_id", U32(u32::MAX)), "expected a token ID from 0 to 399, found 4294967295"),
    (BERT, Key("tokenizer.ggml.mask_token_id", U32s(&[4])), "expected a non-negative integer, found array of u32"),
    (BERT, Key("tokenizer.ggml.seperator_token_id", I32(-3)), "expected a non-negative integer, found i32 -3"),
    (BERT, Key("tokenizer.ggml.add_sep_token", U32(1)), "add_sep_token: expected a bool, found u32 1"),
    (BERT, Key("tokenizer.ggml.add_bos_token", Text("true")), "add_bos_token: expected a bool, found string \"true\""),
    (BERT, Key("tokenizer.ggml.add_eos_token", F32(0.0)), "add_eos_token: expected a bool, found f32 0"),
    (BERT, Key("tokenizer.ggml.normalizer.strip_accents", Text("no")), "strip_accents: expected a bool, found string"),
    (
        BERT,
        Key(MERGING, Text(r#"{"word_piece": {"chars_max": 0}}"#)),
        "expected words of 1 to 1024 characters, found 0",
    ),
    (BERT, Key(MERGING, Text(r#"{"word_piece": {"chars_max": 1025}}"#)), "words of 1 to 1024 characters, found 1025"),
    (BERT, Key(MERGING, Text(r#"{"word_piece": {"chars_max": -1}}"#)), "invalid value: integer `-1`, expected usize"),
    (BERT, Key(MERGING, Text(r#"{"word_piece": {}}"#)), "trueup.tokenizer.merging: missing field `chars_max`"),
    (
        BERT,
        Key(NORMALIZER, Text(r#"{"type": "BertNormalizer", "lowercase": 1}"#)),
        "key trueup.tokenizer.normalizer: invalid type: integer `1`, expected a boolean",
    ),
    (
        BERT,
        Key(NORMALIZER, Text(r#"{"type":"#)),
        "key trueup.tokenizer.normalizer: EOF while parsing a value at line 1",
    ),
    (
        BERT,
        Key("trueup.tokenizer.pre_tokenizer", Text(r#"{"type": "Bert"}"#)),
        "key trueup.tokenizer.pre_tokenizer: unknown variant `Bert`, expected one of",
    ),
    (BERT, Key("trueup.tokenizer.decoder", Text("[]")), "key trueup.tokenizer.decoder: invalid length 0, expected"),
    (
        BERT,
        Key(ADDED, Text(r#"[{"id": 400, "content": "[NEW]"}]"#)),
        "added token [NEW]: expected a token ID from 0 to 399, found 400; the vocabulary may be damaged",
    ),
    (
        BERT,
        Key(ADDED, Text(r#"[{"id": 4, "content": ""}]"#)),
        "added token 4: expected 1 to 4096 bytes of text, found 0",
    ),
    (BERT, Key("trueup.tokenizer.prefix_ids", Text("[2, 400]")), "found 400 for the token before every text"),
    (BERT, Key("trueup.tokenizer.prefix_ids", Text("\"2\"")), "invalid type: string \"2\", expected a sequence"),
];

const FOLDERS: &[Row] = &[
    (BERT, File(JSON, "<!DOCTYPE html><html></html>"), "tokenizer.json: expected the file itself, found a web page"),
    (
        BERT,
        Bytes(JSON, b"\xff\xfe{\0"),
        "tokenizer.json, line 1, column 1: expected valid JSON, found the end of the file",
    ),
    (
        BERT,
        Cut(JSON, 5000),
        "expected valid JSON, found the end of the file; the file is damaged or truncated; download",
    ),
    (
        BERT,
        Json(JSON, "/model/type", "\"Wordpiece\""),
        "model: expected type BPE, Unigram or WordPiece, found Wordpiece",
    ),
    (
        BERT,
        Json(JSON, "/model/type", "\"WordLevel\""),
        "model: expected type BPE, Unigram or WordPiece, found WordLevel",
    ),
    (BERT, Json(JSON, "/model/type", "\"Unigram\""), "model.vocab: expected a list of tokens and scores, found a map"),
    (
        BERT,
        Json(JSON, "/model/type", "4"),
        "invalid type: integer `4`, expected a string; get the file of the original",
    ),
    (
        BERT,
        Json(JSON, "/model/continuing_subword_prefix", "\"@@\""),
        "tokenizer.json, model: continuing_subword_prefix: expected \"##\", found \"@@\"",
    ),
    (BERT, Json(JSON, "/model/continuing_subword_prefix", "\"\""), "subword_prefix: expected \"##\", found \"\""),
    (BERT, Json(JSON, "/model/continuing_subword_prefix", "2"), "invalid type: integer `2`, expected a string"),
    (
        BERT,
        Json(JSON, "/model/max_input_chars_per_word", "0"),
        "chars_per_word: expected 1 to 1024 characters, found 0",
    ),
    (BERT, Json(JSON, "/model/max_input_chars_per_word", "1025"), "expected 1 to 1024 characters, found 1025"),
    (BERT, Json(JSON, "/model/max_input_chars_per_word", "-100"), "invalid value: integer `-100`, expected usize"),
    (BERT, Json(JSON, "/model/max_input_chars_per_word", "18446744073709551616"), "19`, expected usize"),
    (BERT, Json(JSON, "/model/max_input_chars_per_word", "\"100\""), "invalid type: string \"100\", expected usize"),
    (BERT, Json(JSON, "/model/unk_token", "1"), "invalid type: integer `1`, expected a string"),
    (
        BERT,
        NoJson(JSON, "/model/vocab"),
        "tokenizer.json, model.vocab: expected a map from token to ID, found none; get",
    ),
    (BERT, Json(JSON, "/model/vocab", "{}"), "tokenizer.json, model.vocab: expected a map from token to ID, found {}"),
    (
        BERT,
        Json(JSON, "/model/vocab", "[]"),
        "tokenizer.json, model.vocab: expected a map from token to ID, found a list",
    ),
    (
        BERT,
        Json(JSON, "/model/vocab", r#"["[PAD]"]"#),
        "invalid type: string \"[PAD]\", expected a token and a score, as",
    ),
    (BERT, Json(JSON, "/model/vocab/a", "400"), "model.vocab: expected IDs below 400, found 400 for the token \"a\""),
    (BERT, Json(JSON, "/model/vocab/a", "7"), "model.vocab: expected one token with ID 7, found \"'\" and \"a\""),
    (BERT, Json(JSON, "/model/vocab/a", "-1"), "invalid value: integer `-1`, expected u32"),
    (BERT, Json(JSON, "/model/vocab/a", "4294967296"), "invalid value: integer `4294967296`, expected u32"),
    (BERT, Json(JSON, "/model/vocab/a", "\"35\""), "invalid type: string \"35\", expected u32"),
    (BERT, Json(JSON, "/model/vocab/a", "35.5"), "invalid type: floating point `35.5`, expected u32"),
    (BERT, Json(JSON, "/model/vocab/a", "null"), "invalid type: null, expected u32"),
    (BERT, Json(JSON, "/model/vocab/##a##", "399"), "expected one token with ID 399, found \"##ried\" and \"##a##\""),
    (
        BERT,
        Json(JSON, "/added_tokens/1/content", "\"[NEW]\""),
        "expected one token with ID 1, found \"[UNK]\" and \"[NEW]",
    ),
    (BERT, Json(JSON, "/added_tokens/1/content", "\"\""), "expected text for the added token 1, found none"),
    (BERT, Json(JSON, "/added_tokens/1/content", "null"), "invalid type: null, expected a string"),
    (BERT, NoJson(JSON, "/added_tokens/1/id"), "missing field `id`; get the file of the original model"),
    (BERT, Json(JSON, "/normalizer/lowercase", "\"true\""), "normalizer: invalid type: string \"true\", expected a"),
    (BERT, NoJson(JSON, "/normalizer/lowercase"), "tokenizer.json, normalizer: missing field `lowercase`"),
    (BERT, Json(JSON, "/normalizer/type", "\"Bert\""), "normalizer: expected a supported type, found \"Bert\""),
    (BERT, Json(JSON, "/pre_tokenizer/type", "\"Bert\""), "pre_tokenizer: expected a supported type, found \"Bert\""),
    (BERT, Json(JSON, "/decoder/prefix", "3"), "tokenizer.json, decoder: invalid type: integer `3`, expected a string"),
    (
        BERT,
        Json(JSON, "/decoder/cleanup", "\"yes\""),
        "tokenizer.json, decoder: invalid type: string \"yes\", expected a",
    ),
    (
        BERT,
        Json(JSON, "/post_processor/special_tokens/[CLS]/ids/0", "400"),
        "special tokens: expected a token ID from 0 to 399, found 400 for the token before every text",
    ),
    (
        BERT,
        Json(JSON, "/post_processor/special_tokens/[CLS]/ids/0", "-2"),
        "tokenizer.json, post_processor: invalid value: integer `-2`, expected u32",
    ),
    (
        BERT,
        NoJson(JSON, "/post_processor/special_tokens/[SEP]"),
        "post_processor: single: expected a token of special_tokens, found [SEP]",
    ),
    (BERT, Json(JSON, "/post_processor/single/1/Sequence/id", "\"B\""), "expected the sequence A once, found B"),
    (
        BERT,
        NoJson(JSON, "/post_processor/single/1"),
        "post_processor: single: expected the sequence A once, found none",
    ),
    (
        BERT,
        Json(CONFIG, "/added_tokens_decoder/5", r#"{"content": "[NEW]"}"#),
        "expected one token with ID 5, found \"[NEW]\" in tokenizer_config.json and \"!\" in tokenizer.json",
    ),
    (
        CASED,
        File(LINES, POINTER),
        "vocab.txt: expected the file itself, found a Git LFS pointer to a file of 1708 bytes",
    ),
    (CASED, File(LINES, "<!DOCTYPE html>\n"), "vocab.txt: expected the file itself, found a web page (HTML or XML)"),
    (CASED, Bytes(LINES, b"[PAD]\n[UNK]\n\xff\xfe\n"), "vocab.txt, byte 12: expected UTF-8 text, found other bytes"),
    (CASED, Bytes(LINES, b"\0\0\0\0"), "in tokenizer_config.json and \"\\u{0}\\u{0}\\u{0}\\u{0}\" in vocab.txt"),
    (CASED, File(LINES, "\n"), "found \"[PAD]\" in tokenizer_config.json and \"\" in vocab.txt; use the files of one"),
    (CASED, Line(LINES, 401, "extra"), "vocab.txt: expected at most 400 tokens (the rows of the embedding), found 401"),
    (
        CASED,
        Line(LINES, 50, "a\nb\nc"),
        "vocab.txt: expected at most 400 tokens (the rows of the embedding), found 402",
    ),
    (
        CASED,
        Line(LINES, 1, "[pad]"),
        "expected one token with ID 0, found \"[PAD]\" in tokenizer_config.json and \"[pad]",
    ),
    (
        CASED,
        Line(LINES, 2, "[unk]"),
        "expected one token with ID 1, found \"[UNK]\" in tokenizer_config.json and \"[unk]",
    ),
    (
        CASED,
        Line(LINES, 3, ""),
        "expected one token with ID 2, found \"[CLS]\" in tokenizer_config.json and \"\" in vocab",
    ),
    (
        CASED,
        Line(LINES, 5, LONG_TEXT),
        "expected one token with ID 4, found \"[MASK]\" in tokenizer_config.json and \"xx",
    ),
    (
        CASED,
        Json(CONFIG, "/tokenizer_class", "\"XLNetTokenizer\""),
        "tokenizer_class: expected a BERT tokenizer for vocab.txt, found XLNetTokenizer",
    ),
    (
        CASED,
        Json(CONFIG, "/tokenizer_class", r#"["BertTokenizer"]"#),
        "tokenizer_class: expected a string, found [\"Bert",
    ),
    (CASED, Json(CONFIG, "/do_basic_tokenize", "false"), "do_basic_tokenize: expected true, found false"),
    (CASED, Json(CONFIG, "/do_basic_tokenize", "0"), "do_basic_tokenize: expected true or false, found 0"),
    (
        CASED,
        Json(CONFIG, "/tokenize_chinese_chars", "\"yes\""),
        "tokenize_chinese_chars: expected true or false, found",
    ),
    (CASED, Json(CONFIG, "/strip_accents", "1"), "strip_accents: expected true or false, found 1"),
    (CASED, Json(CONFIG, "/cls_token", "2"), "cls_token: expected a string, or an object with the string \"content\""),
    (
        CASED,
        Json(CONFIG, "/mask_token", r#"["[MASK]"]"#),
        "mask_token: expected a string, or an object with the string",
    ),
    (CASED, Json(CONFIG, "/sep_token", r#"{"text": "[SEP]"}"#), "sep_token: expected a string, or an object with the"),
    (CASED, Json(CONFIG, "/added_tokens_decoder", "[]"), "added_tokens_decoder: expected an object, found []"),
    (
        CASED,
        Json(CONFIG, "/added_tokens_decoder/one", r#"{"content": "[NEW]"}"#),
        "added_tokens_decoder: expected token IDs as keys, found \"one\"",
    ),
    (
        CASED,
        Json(CONFIG, "/added_tokens_decoder/-1", r#"{"content": "[NEW]"}"#),
        "added_tokens_decoder: expected token IDs as keys, found \"-1\"",
    ),
    (
        CASED,
        Json(CONFIG, "/added_tokens_decoder/4294967296", r#"{"content": "[NEW]"}"#),
        "added_tokens_decoder: expected token IDs as keys, found \"4294967296\"",
    ),
    (CASED, Json(CONFIG, "/added_tokens_decoder/1/special", "1"), "1: special: expected true or false, found 1"),
    (
        CASED,
        Json(CONFIG, "/added_tokens_decoder/1/content", "\"[NEW]\""),
        "expected one token with ID 1, found \"[NEW]\" in tokenizer_config.json and \"[UNK]\" in vocab.txt",
    ),
    (CASED, Config("vocab_size", "399"), "word_embeddings.weight: expected shape [399, 64], found [400, 64]"),
    (CASED, Config("pad_token_id", "\"0\""), "pad_token_id in config.json: expected a token ID, found \"0\""),
];
