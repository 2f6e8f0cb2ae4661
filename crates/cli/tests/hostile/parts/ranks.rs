//! Vocabularies of byte ranks: `qwen.tiktoken`, `tokenizer.model` of GLM-4 and of Llama 3, and their GGUF keys.

use super::Change::{Bytes, Config, Cut, File, Fixture, Item, Json, Key, Line, NoFile, NoJson, NoKey};
use super::Given::{Array, I32, Text, Texts, U32, U32s};
use super::{Part, Row};
use crate::case::Call;
use crate::gguf_parts as gguf;

pub const PART: Part = Part { name: "byte ranks", files: FILES, folders: FOLDERS, calls: &[Call::Tokenize, Call::Run] };

/// Its ranks end with 379.
const QWEN: &str = "models/qwen";
/// Its ranks end with 383, and `tokenizer_config.json` lists the tokens from 384 to 397.
const GLM4: &str = "models/glm4";
/// Its `tokenizer.model` is a SentencePiece model. Llama 3's original file of that name has byte ranks.
const LLAMA: &str = "models/llama-linear";
const GLM4_RANKS: &str = "models/glm4/tokenizer.model";

const RANKS: &str = "qwen.tiktoken";
const MODEL: &str = "tokenizer.model";
const CONFIG: &str = "tokenizer_config.json";
const GENERATION: &str = "generation_config.json";
const POINTER: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 3514\n";

const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";
const PREFIX: &str = "trueup.tokenizer.prefix_ids";
const ENDS: &str = "trueup.tokenizer.end_of_generation_ids";

const FILES: &[Row] = &[
    (QWEN, NoKey(MERGES), "key tokenizer.ggml.merges: expected an array of strings, found no such key"),
    (QWEN, Key(MERGES, Text("a b")), "key tokenizer.ggml.merges: expected an array of strings, found string \"a b\""),
    (QWEN, Key(MERGES, U32s(&[1])), "key tokenizer.ggml.merges: expected an array of strings, found array of u32"),
    (
        QWEN,
        Key(MERGES, Texts(&["a r", "ar"])),
        "merges[1]: expected two tokens separated by a space, found \"ar\"; the",
    ),
    (
        QWEN,
        Key(MERGES, Texts(&["zzz yyy"])),
        "merges[0]: expected tokens of the vocabulary, found \"zzz\", which is not",
    ),
    (QWEN, Key(MERGES, Texts(&["a "])), "tokenizer.ggml.merges[0]: expected two tokens, found an empty one"),
    (QWEN, Key(MERGES, Array(gguf::STRING, 1 << 59, b"")), "expected 576460752303423488 items of at least 8 bytes"),
    (QWEN, Item(MERGES, 1, Text("")), "tokenizer.ggml.merges[1]: expected two tokens separated by a space, found \"\""),
    (
        QWEN,
        Item(MERGES, 1, Text("a zz")),
        "merges[1]: expected tokens of the vocabulary, found \"zz\", which is not in",
    ),
    (QWEN, Item(MERGES, 1, Text("a r e")), "merges[1]: expected tokens of the vocabulary, found \"r e\", which is not"),
    (
        QWEN,
        Item(MERGES, 1, Text("! !")),
        "merges[1]: expected tokens of the vocabulary, found \"!!\", which is not in it",
    ),
    (
        QWEN,
        Item(TOKENS, 64, Text("b")),
        "merges[1]: expected tokens of the vocabulary, found \"a\", which is not in it",
    ),
    (QWEN, Item(TYPES, 0, I32(-1)), "tokenizer.ggml.token_type: expected a type from 1 to 6 for token 0, found -1"),
    (QWEN, Key("tokenizer.ggml.pre", Text("qwen3.7")), "expected the name of a known pre-tokenizer, found \"qwen3.7\""),
    (
        QWEN,
        Key("tokenizer.ggml.pre", Text("whitespace")),
        "the pre-tokenizer \"whitespace\" needs tokenizer.ggml.model",
    ),
    (QWEN, Key("tokenizer.ggml.pre", U32(2)), "key tokenizer.ggml.pre: expected a string, found u32 2"),
    (QWEN, Key("tokenizer.ggml.eos_token_id", U32(592)), "eos_token_id: expected a token ID from 0 to 591, found 592"),
    (QWEN, Key("tokenizer.ggml.eot_token_id", I32(-1)), "eot_token_id: expected a non-negative integer, found i32 -1"),
    (
        QWEN,
        Key("trueup.tokenizer.normalizer", Text(r#"{"type": "NFQ"}"#)),
        "normalizer: unknown variant `NFQ`, expected",
    ),
    (GLM4, Key(PREFIX, Text("[386, 400]")), "expected a token ID from 0 to 399, found 400 for the token before every"),
    (GLM4, Key(PREFIX, Text("[386.5]")), "prefix_ids: invalid type: floating point `386.5`, expected u32 at line 1"),
    (GLM4, Key(ENDS, Text("[384, 400]")), "found 400 for the token at the end of generation"),
    (GLM4, Key(ENDS, Text("{}")), "key trueup.tokenizer.end_of_generation_ids: invalid type: map, expected a sequence"),
];

const FOLDERS: &[Row] = &[
    (QWEN, NoFile(RANKS), "expected a tokenizer (tokenizer.json, tokenizer.model, spiece.model, "),
    (QWEN, File(RANKS, ""), "qwen.tiktoken: expected base64 text and a rank on each line, found no line; the file is"),
    (QWEN, File(RANKS, "\n\n\n"), "qwen.tiktoken: expected base64 text and a rank on each line, found no line"),
    (QWEN, File(RANKS, "IQ== 0\n"), "qwen.tiktoken: expected a token for each byte of UTF-8, found none for 0x00"),
    (QWEN, File(RANKS, "IQ==\n"), "qwen.tiktoken, token 0: expected base64 text and a rank, found \"IQ==\""),
    (QWEN, File(RANKS, POINTER), "qwen.tiktoken: expected the file itself, found a Git LFS pointer to a file of 3514"),
    (
        QWEN,
        File(RANKS, "<html>\n"),
        "qwen.tiktoken: expected the file itself, found a web page (HTML or XML); download",
    ),
    (QWEN, File(RANKS, r#"{"IQ==": 0}"#), "qwen.tiktoken, token 0: expected rank 0, found \"0}\""),
    (QWEN, Bytes(RANKS, b"\xff\xfe 0\n"), "qwen.tiktoken, token 0: expected base64 text, found "),
    (QWEN, Bytes(RANKS, b"\0\0\0\0"), "qwen.tiktoken, token 0: expected base64 text and a rank, found "),
    (
        QWEN,
        File("other.tiktoken", "IQ== 0\n"),
        "expected one .tiktoken file, found 2; name the right one with --tokenizer",
    ),
    (QWEN, Cut(RANKS, 2000), "qwen.tiktoken, token 234: expected base64 text and a rank, found \"jA==\"; the file is"),
    (QWEN, Cut(RANKS, 2005), "qwen.tiktoken: expected a token for each byte of UTF-8, found none for 0x"),
    (QWEN, Cut(RANKS, 8), "qwen.tiktoken, token 1: expected base64 text and a rank, found \"I\""),
    (QWEN, Line(RANKS, 1, "IQ== 1"), "qwen.tiktoken, token 0: expected rank 0, found \"1\""),
    (QWEN, Line(RANKS, 1, "IQ== -1"), "qwen.tiktoken, token 0: expected rank 0, found \"-1\""),
    (QWEN, Line(RANKS, 100, "xA=="), "qwen.tiktoken, token 99: expected base64 text and a rank, found \"xA==\""),
    (QWEN, Line(RANKS, 100, "xA== 98"), "qwen.tiktoken, token 99: expected rank 99, found \"98\""),
    (QWEN, Line(RANKS, 100, "xA== 100"), "qwen.tiktoken, token 99: expected rank 99, found \"100\""),
    (QWEN, Line(RANKS, 100, "xA== 4294967395"), "qwen.tiktoken, token 99: expected rank 99, found \"4294967395\""),
    (QWEN, Line(RANKS, 100, "xA== 18446744073709551715"), "expected rank 99, found \"18446744073709551715\""),
    (QWEN, Line(RANKS, 100, "xA== 99.0"), "qwen.tiktoken, token 99: expected rank 99, found \"99.0\""),
    (QWEN, Line(RANKS, 100, "xA== 0x63"), "qwen.tiktoken, token 99: expected rank 99, found \"0x63\""),
    (QWEN, Line(RANKS, 100, "xA==  99"), "qwen.tiktoken, token 99: expected rank 99, found \" 99\""),
    (QWEN, Line(RANKS, 100, "xA== 99 99"), "qwen.tiktoken, token 99: expected rank 99, found \"99 99\""),
    (QWEN, Line(RANKS, 100, "xA==\t99"), "qwen.tiktoken, token 99: expected base64 text and a rank, found \"xA=="),
    (QWEN, Line(RANKS, 100, " 99"), "qwen.tiktoken, token 99: expected base64 text, found \"\""),
    (QWEN, Line(RANKS, 100, "= 99"), "qwen.tiktoken, token 99: expected base64 text, found \"=\""),
    (QWEN, Line(RANKS, 100, "xA= 99"), "qwen.tiktoken, token 99: expected base64 text, found \"xA=\""),
    (QWEN, Line(RANKS, 100, "xA 99"), "qwen.tiktoken, token 99: expected base64 text, found \"xA\""),
    (QWEN, Line(RANKS, 100, "xB== 99"), "qwen.tiktoken, token 99: expected base64 text, found \"xB==\""),
    (QWEN, Line(RANKS, 100, "x!== 99"), "qwen.tiktoken, token 99: expected base64 text, found \"x!==\""),
    (QWEN, Line(RANKS, 100, "x_== 99"), "qwen.tiktoken, token 99: expected base64 text, found \"x_==\""),
    (QWEN, Line(RANKS, 100, "\u{1b}[2J 99"), "qwen.tiktoken, token 99: expected base64 text, found "),
    (QWEN, Line(RANKS, 100, "# 99"), "qwen.tiktoken, token 99: expected base64 text, found \"#\""),
    (QWEN, Line(RANKS, 100, ""), "qwen.tiktoken, token 99: expected rank 99, found \"100\""),
    (
        QWEN,
        Line(RANKS, 100, "IQ== 99"),
        "qwen.tiktoken, token 99: expected each token once, found \"IQ==\" again, which",
    ),
    (
        QWEN,
        Line(RANKS, 100, "IHQ= 99"),
        "qwen.tiktoken, token 256: expected each token once, found \"IHQ=\" again, which has",
    ),
    (QWEN, Line(RANKS, 300, "enp6 299"), "qwen.tiktoken: expected tokens that join two earlier ones, found \"zzz\""),
    (
        QWEN,
        Line(RANKS, 381, "enp6eno= 380"),
        "qwen.tiktoken: expected tokens that join two earlier ones, found \"zzzzz\"",
    ),
    (QWEN, Config("vocab_size", "591"), "tensor transformer.wte.weight: expected shape [591, 64], found [592, 64]"),
    (QWEN, Json(CONFIG, "/tokenizer_class", "7"), "tokenizer_config.json: tokenizer_class: expected a string, found 7"),
    (
        QWEN,
        Json(CONFIG, "/chat_template", "7"),
        "chat_template: expected a string, a list of objects with string fields",
    ),
    (
        QWEN,
        Cut(RANKS, 3501),
        "expected 379 (<|endoftext|>) or 381 (<|im_end|>), because qwen.tiktoken has 379 ranks, found 380",
    ),
    (
        QWEN,
        Line(RANKS, 381, "IG5k 380"),
        "expected 381 (<|endoftext|>) or 383 (<|im_end|>), because qwen.tiktoken has 381 ranks",
    ),
    (
        QWEN,
        File(GENERATION, r#"{"eos_token_id": 592}"#),
        "generation_config.json, eos_token_id: expected 380 (<|endoftext|>)",
    ),
    (QWEN, File(GENERATION, r#"{"eos_token_id": [380, 5]}"#), "because qwen.tiktoken has 380 ranks, found 380, 5"),
    (QWEN, File(GENERATION, r#"{"eos_token_id": -2}"#), "eos_token_id in generation_config.json: expected a token ID"),
    (QWEN, File(GENERATION, r#"{"eos_token_id": "<|endoftext|>"}"#), "expected a token ID, found \"<|endoftext|>\""),
    (QWEN, File(GENERATION, "[]"), "generation_config.json: expected a JSON object, found an array"),
    (GLM4, File(MODEL, ""), "tokenizer.model, byte 0: expected pieces, found none; the file is damaged or is not a"),
    (
        GLM4,
        File(MODEL, POINTER),
        "tokenizer.model: expected the file itself, found a Git LFS pointer to a file of 3514",
    ),
    (GLM4, Cut(MODEL, 2000), "tokenizer.model, token 234: expected base64 text and a rank, found "),
    (GLM4, Cut(MODEL, 2005), "tokenizer.model: expected a token for each byte of UTF-8, found none for 0x"),
    (
        GLM4,
        Cut(MODEL, 3553),
        "expected 384 ranks, because the first listed special token, \"<|endoftext|>\", has ID 384, found 383",
    ),
    (
        GLM4,
        Cut(MODEL, 2194),
        "expected 384 ranks, because the first listed special token, \"<|endoftext|>\", has ID 384, found 256",
    ),
    (
        GLM4,
        Line(MODEL, 1, "IQ== 1"),
        "tokenizer.model, byte 128: expected wire type 0, 1, 2 or 5, found 7; the file is",
    ),
    (GLM4, Line(MODEL, 1, "I!== 0"), "the file is damaged or is not a SentencePiece model; download it again"),
    (GLM4, Line(MODEL, 2, "IQ== 1"), "tokenizer.model, token 1: expected each token once, found \"IQ==\" again, which"),
    (GLM4, Line(MODEL, 2, "Ig== 2"), "tokenizer.model, token 1: expected rank 1, found \"2\""),
    (GLM4, Line(MODEL, 100, "xA== 18446744073709551715"), "tokenizer.model, token 99: expected rank 99, found"),
    (GLM4, Line(MODEL, 100, "xA= 99"), "tokenizer.model, token 99: expected base64 text, found \"xA=\""),
    (GLM4, Line(MODEL, 385, "AAECAw== 384"), "tokenizer.model: expected tokens that join two earlier ones, found "),
    (
        GLM4,
        Line(MODEL, 385, "IG5k 384"),
        "one token with ID 384, found \"<|endoftext|>\" in tokenizer_config.json and \"Ġnd\" in tokenizer.model",
    ),
    (GLM4, NoFile(CONFIG), "found byte ranks without a file that lists [gMASK] and <sop>; put the tokenizer.json"),
    (GLM4, NoJson(CONFIG, "/added_tokens_decoder/386"), "found byte ranks without a file that lists [gMASK] and <sop>"),
    (
        GLM4,
        Json(CONFIG, "/added_tokens_decoder/388/content", "\"<SOP>\""),
        "found byte ranks without a file that lists [gMASK] and <sop>; put the tokenizer.json of the model",
    ),
    (
        GLM4,
        Json(CONFIG, "/added_tokens_decoder/383", r#"{"content": "<new>"}"#),
        "expected one token with ID 383, found \"<new>\" in tokenizer_config.json and \"Ġn\" in tokenizer.model",
    ),
    (
        GLM4,
        Json(CONFIG, "/added_tokens_decoder/384/content", "\"\""),
        "added token 384: expected 1 to 4096 bytes of text",
    ),
    (
        GLM4,
        Json(CONFIG, "/added_tokens_decoder/384/content", "null"),
        "384: expected an object with the string \"content",
    ),
    (GLM4, Json(CONFIG, "/added_tokens_decoder/384/special", "\"yes\""), "384: special: expected true or false, found"),
    (GLM4, Json(CONFIG, "/added_tokens_decoder", "[]"), "added_tokens_decoder: expected an object, found []"),
    (
        GLM4,
        Json(CONFIG, "/added_tokens_decoder/-384", r#"{"content": "<new>"}"#),
        "added_tokens_decoder: expected token IDs as keys, found \"-384\"",
    ),
    (GLM4, Config("eos_token_id", "[384.5]"), "eos_token_id in config.json: expected a token ID, found 384.5"),
    (GLM4, Config("padded_vocab_size", "300"), "word_embeddings.weight: expected shape [300, 64], found [400, 64]"),
    (
        LLAMA,
        Fixture(MODEL, GLM4_RANKS),
        "expected a SentencePiece model or the byte ranks of GLM-4, found byte ranks without a file that lists",
    ),
    (
        LLAMA,
        File(MODEL, "IQ== 0\nIg== 1\n"),
        "tokenizer.model: expected a SentencePiece model or the byte ranks of GLM-4",
    ),
];
