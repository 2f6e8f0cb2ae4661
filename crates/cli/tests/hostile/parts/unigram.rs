//! Unigram vocabularies: `tokenizer.json`, SentencePiece models, and GGUF keys with scores and a character map.

use super::Change::{
    Bytes, Config, Cut, File, Fixture, Item, Json, Key, Message, NoFile, NoJson, NoKey, NoMessage, Piece,
};
use super::Given::{Array, F32, F32s, I32, I32s, Text, Texts, U8s, U32, U32s};
use super::{Part, Row};
use crate::case::Call;
use crate::gguf_parts as gguf;

pub const PART: Part =
    Part { name: "unigram vocabularies", files: FILES, folders: FOLDERS, calls: &[Call::Tokenize, Call::Run] };

const T5: &str = "encoder-decoders/t5";
/// Its only vocabulary is a SentencePiece model of 330 pieces; the embedding has 384 rows.
const PIECES: &str = "models/llama-linear + tokenizers/unigram/tokenizer.model";

const JSON: &str = "tokenizer.json";
const MODEL: &str = "tokenizer.model";
const CONFIG: &str = "tokenizer_config.json";
const GENERATION: &str = "generation_config.json";
const POINTER: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 6704\n";

const TOKENS: &str = "tokenizer.ggml.tokens";
const SCORES: &str = "tokenizer.ggml.scores";
const TYPES: &str = "tokenizer.ggml.token_type";
const MAP: &str = "tokenizer.ggml.precompiled_charsmap";
const MERGING: &str = "trueup.tokenizer.merging";
const NORMALIZER: &str = "trueup.tokenizer.normalizer";

/// One byte more than a piece may have.
const LONG: &[u8] = &[b'x'; 1025];
const LONG_TEXT: &str = match std::str::from_utf8(LONG) {
    Ok(text) => text,
    Err(_) => panic!(),
};

const FILES: &[Row] = &[
    (T5, NoKey("tokenizer.ggml.model"), "key tokenizer.ggml.model: expected a"),
    (
        T5,
        Key("tokenizer.ggml.model", Text("T5")),
        "tokenizer.ggml.model: expected a tokenizer of type llama, t5, gpt2,",
    ),
    (T5, Key("tokenizer.ggml.model", U32(5)), "key tokenizer.ggml.model: expected a string, found u32 5"),
    (T5, NoKey(TOKENS), "key tokenizer.ggml.tokens: expected an array of strings, found no such key"),
    (T5, Key(TOKENS, Array(gguf::STRING, 1 << 60, b"")), "expected 1152921504606846976 items of at least 8 bytes"),
    (T5, Key(TOKENS, Array(gguf::STRING, 337, b"")), "key tokenizer.ggml.tokens, item 1 at byte"),
    (T5, Item(TOKENS, 9, Text(LONG_TEXT)), "token 9: expected at most 1024 bytes of text in a unigram model, found"),
    (T5, NoKey(SCORES), "key tokenizer.ggml.scores: expected an array of f32, found no such key"),
    (T5, Key(SCORES, F32s(&[])), "tokenizer.ggml.scores: expected 336 entries, one per token, found 0"),
    (T5, Key(SCORES, F32s(&[0.0, -1.0])), "tokenizer.ggml.scores: expected 336 entries, one per token, found 2"),
    (T5, Key(SCORES, Text("-1")), "key tokenizer.ggml.scores: expected an array of f32, found string \"-1\""),
    (T5, Key(SCORES, I32s(&[0, -1])), "key tokenizer.ggml.scores: expected an array of f32, found array of i32"),
    (T5, Key(SCORES, Texts(&["-1"])), "key tokenizer.ggml.scores: expected an array of f32, found array of string"),
    (T5, Key(SCORES, Array(gguf::F32, 1 << 62, b"")), "expected 4611686018427387904 items of at least 4 bytes, found"),
    (T5, Item(SCORES, 7, F32(f32::NAN)), "token 7: expected a finite score, found NaN; the vocabulary may be damaged"),
    (T5, Item(SCORES, 335, F32(f32::INFINITY)), "token 335: expected a finite score, found inf"),
    (T5, Item(SCORES, 0, F32(f32::NEG_INFINITY)), "token 0: expected a finite score, found -inf"),
    (T5, Key(TYPES, I32s(&[3])), "tokenizer.ggml.token_type: expected 336 entries, one per token, found 1"),
    (T5, Key(TYPES, U32s(&[3])), "key tokenizer.ggml.token_type: expected an array of i32, found array of u32"),
    (T5, Item(TYPES, 3, I32(0)), "tokenizer.ggml.token_type: expected a type from 1 to 6 for token 3, found 0"),
    (T5, Item(TYPES, 3, I32(7)), "tokenizer.ggml.token_type: expected a type from 1 to 6 for token 3, found 7"),
    (T5, Item(TYPES, 335, I32(-1)), "tokenizer.ggml.token_type: expected a type from 1 to 6 for token 335, found -1"),
    (T5, Key("tokenizer.ggml.eos_token_id", U32(336)), "eos_token_id: expected a token ID from 0 to 335, found 336"),
    (T5, Key("tokenizer.ggml.eos_token_id", I32(-1)), "eos_token_id: expected a non-negative integer, found i32 -1"),
    (T5, Key("tokenizer.ggml.unknown_token_id", U32(u32::MAX)), "unknown_token_id: expected a token ID from 0 to 335"),
    (T5, Key("tokenizer.ggml.unknown_token_id", Text("<unk>")), "unknown_token_id: expected a non-negative integer"),
    (T5, Key("tokenizer.ggml.add_space_prefix", U32(1)), "add_space_prefix: expected a bool, found u32 1"),
    (T5, Key("tokenizer.ggml.remove_extra_whitespaces", Text("yes")), "remove_extra_whitespaces: expected a bool"),
    (T5, Key("tokenizer.ggml.add_eos_token", I32(1)), "add_eos_token: expected a bool, found i32 1"),
    (T5, Key(MAP, U8s(&[0, 0])), "tokenizer.ggml.precompiled_charsmap: character map: expected 4 bytes or more, found"),
    (T5, Key(MAP, U8s(&[0, 0, 0, 0])), "character map: expected a size that is a multiple of 4, found 0; the file is"),
    (T5, Key(MAP, U8s(&[6, 0, 0, 0, 0, 0, 0, 0, 0, 0])), "expected a size that is a multiple of 4, found 6"),
    (T5, Key(MAP, U8s(&[252, 255, 255, 255, 0, 0, 0, 0])), "expected 4294967292 bytes of units, found 4"),
    (T5, Key(MAP, U8s(&[4, 0, 0, 0, 0, 1, 0, 0])), "unit 0 of the character map: expected the offset of a string"),
    (T5, Key(MAP, U8s(&[4, 0, 0, 0, 0, 4, 0, 0])), "unit 0 of the character map: expected a unit below 1, found 1"),
    (T5, Key(MAP, U8s(&[4, 0, 0, 0, 0, 0, 0, 0, 255])), "character map: expected texts in UTF-8, found other bytes"),
    (T5, Key(MAP, Text("BAAAAAAAAAA=")), "key tokenizer.ggml.precompiled_charsmap: expected an array, found string"),
    (T5, Key(MAP, U32s(&[4, 0])), "precompiled_charsmap: expected an array of u8 or i8, found another type; the file"),
    (
        T5,
        Key(NORMALIZER, Text(r#"{"type": "Precompiled", "precompiled_charsmap": "AAg"}"#)),
        "key trueup.tokenizer.normalizer: precompiled_charsmap: expected base64 text: ",
    ),
    (T5, Key(NORMALIZER, Text(r#"{"type": "Magic"}"#)), "trueup.tokenizer.normalizer: unknown variant `Magic`,"),
    (T5, Key(MERGING, Text(r#"{"unigram": {"rule": "mine"}}"#)), "trueup.tokenizer.merging: unknown variant `mine`,"),
    (T5, Key(MERGING, Text(r#"{"unigram": {}}"#)), "trueup.tokenizer.merging: missing field `rule` at line 1"),
    (T5, Key(MERGING, Text("unigram")), "trueup.tokenizer.merging: expected value at line 1 column 1; the file is"),
    (T5, Key("trueup.tokenizer.suffix_ids", Text("[336]")), "found 336 for the token after every text"),
    (T5, Key("trueup.tokenizer.suffix_ids", Text("[-1]")), "suffix_ids: invalid value: integer `-1`, expected u32"),
];

const FOLDERS: &[Row] = &[
    (T5, NoFile(JSON), "expected a tokenizer (tokenizer.json, tokenizer.model, spiece.model, "),
    (
        T5,
        File(JSON, POINTER),
        "tokenizer.json: expected the file itself, found a Git LFS pointer to a file of 6704 bytes",
    ),
    (T5, Cut(JSON, 9000), "expected valid JSON, found the end of the file; the file is damaged or truncated"),
    (T5, Json(JSON, "/model", "[]"), "invalid length 0, expected an object; get the file of the original model"),
    (T5, Json(JSON, "/model/type", "\"BPE\""), "tokenizer.json, model.vocab: expected a map from token to ID, found a"),
    (T5, Json(JSON, "/model/type", "\"unigram\""), "model: expected type BPE, Unigram or WordPiece, found unigram"),
    (T5, NoJson(JSON, "/model/vocab"), "model.vocab: expected a list of tokens and scores, found none; get the file"),
    (T5, Json(JSON, "/model/vocab", "[]"), "model.vocab: expected a list of tokens and scores, found []"),
    (T5, Json(JSON, "/model/vocab", r#"{"a": 0}"#), "model.vocab: expected a list of tokens and scores, found a map"),
    (T5, Json(JSON, "/model/vocab/5", r#"["ar"]"#), "invalid length 1, expected a token and a score, as [\"a\", -1.0]"),
    (T5, Json(JSON, "/model/vocab/5", r#"["ar", -3.6, 1]"#), "invalid length 3, expected a token and a score, as"),
    (T5, Json(JSON, "/model/vocab/5", r#"["ar", "-3.6"]"#), "invalid type: string \"-3.6\", expected f64"),
    (T5, Json(JSON, "/model/vocab/5", r#"["ar", null]"#), "invalid type: null, expected f64"),
    (T5, Json(JSON, "/model/vocab/5", "[7, -3.6]"), "invalid type: integer `7`, expected a string"),
    (T5, Json(JSON, "/model/vocab/5", r#"{"ar": -3.6}"#), "invalid type: map, expected a token and a score, as"),
    (T5, Json(JSON, "/model/vocab/5", "\"ar\""), "invalid type: string \"ar\", expected a token and a score"),
    (T5, Json(JSON, "/model/vocab/5", r#"["ar", 1e39]"#), "token 5: expected a finite score, found inf"),
    (T5, Json(JSON, "/model/vocab/5", r#"["ar", -1e300]"#), "token 5: expected a finite score, found -inf"),
    (T5, Json(JSON, "/model/vocab/5", r#"["d", -3.6]"#), "expected each token once, found \"d\" with the IDs 4 and 5"),
    (T5, Json(JSON, "/model/unk_id", "334"), "model.unk_id: expected a token ID from 0 to 333, found 334"),
    (T5, Json(JSON, "/model/unk_id", "-1"), "invalid value: integer `-1`, expected u32; get the file of the original"),
    (T5, Json(JSON, "/model/unk_id", "4294967296"), "invalid value: integer `4294967296`, expected u32"),
    (T5, Json(JSON, "/model/unk_id", "\"<unk>\""), "invalid type: string \"<unk>\", expected u32"),
    (T5, Json(JSON, "/model/unk_id", "1.5"), "invalid type: floating point `1.5`, expected u32"),
    (T5, Json(JSON, "/model/byte_fallback", "\"yes\""), "invalid type: string \"yes\", expected a boolean"),
    (T5, Json(JSON, "/normalizer/precompiled_charsmap", "\"\""), "character map: expected 4 bytes or more, found 0"),
    (
        T5,
        Json(JSON, "/normalizer/precompiled_charsmap", "\"AAgAAAAgAAA=\""),
        "normalizer: precompiled_charsmap: character map: expected 2048 bytes of units, found 4",
    ),
    (T5, Json(JSON, "/normalizer/precompiled_charsmap", "\"A?\""), "precompiled_charsmap: expected base64 text: "),
    (T5, Json(JSON, "/normalizer/precompiled_charsmap", "null"), "normalizer: invalid type: null, expected a string"),
    (T5, NoJson(JSON, "/normalizer/precompiled_charsmap"), "normalizer: missing field `precompiled_charsmap`"),
    (
        T5,
        Json(JSON, "/added_tokens/3/content", "\"<new>\""),
        "one token with ID 330, found \"<extra_id_3>\" and \"<new",
    ),
    (T5, Json(JSON, "/added_tokens/3/id", "-330"), "invalid value: integer `-330`, expected u32"),
    (T5, Json(JSON, "/added_tokens/3/special", "1"), "invalid type: integer `1`, expected a boolean"),
    (
        T5,
        Json(JSON, "/post_processor/special_tokens/<~1s>/ids/0", "336"),
        "special tokens: expected a token ID from 0 to 335, found 336 for the token after every text",
    ),
    (
        T5,
        Json(JSON, "/pre_tokenizer/pretokenizers/1/replacement", "\"__\""),
        "tokenizer.json, pre_tokenizer: invalid value: string \"__\", expected a character",
    ),
    (
        T5,
        Json(JSON, "/pre_tokenizer/pretokenizers/1/add_prefix_space", "\"no\""),
        "Metaspace, add_prefix_space: expected true or false, found \"no\"",
    ),
    (T5, Json(JSON, "/decoder/replacement", "7"), "tokenizer.json, decoder: invalid type: integer `7`, expected a"),
    (T5, Config("vocab_size", "300"), "tensor shared.weight: expected shape [300, 64], found [336, 64]"),
    (
        T5,
        Json(CONFIG, "/added_tokens_decoder/5", r#"{"content": "<new>"}"#),
        "expected one token with ID 5, found \"<new>\" in tokenizer_config.json and \"ar\" in tokenizer.json",
    ),
    (T5, Json(CONFIG, "/added_tokens_decoder/330", "\"<extra_id_3>\""), "330: expected an object with the string"),
    (T5, Json(CONFIG, "/unk_token", "2"), "tokenizer_config.json: unk_token: expected a string, or an object with the"),
    (PIECES, Bytes(MODEL, b""), "tokenizer.model, byte 0: expected pieces, found none"),
    (
        PIECES,
        File(MODEL, POINTER),
        "tokenizer.model: expected the file itself, found a Git LFS pointer to a file of 6704",
    ),
    (PIECES, Cut(MODEL, 3000), "tokenizer.model, byte 2991: expected 13 bytes, found 9; the file is damaged or is not"),
    (PIECES, Cut(MODEL, 6700), "tokenizer.model, byte 4128: expected 2576 bytes, found 2572"),
    (PIECES, NoMessage(1), "tokenizer.model, byte 2642: expected pieces, found none"),
    (
        PIECES,
        NoMessage(2),
        "tokenizer.model: expected trainer_spec and normalizer_spec after the pieces, found the end",
    ),
    (
        PIECES,
        NoMessage(3),
        "expected trainer_spec and normalizer_spec after the pieces, found the end of the file; the",
    ),
    (PIECES, Piece(100, b"zzz", f32::NAN, 1), "tokenizer.model: expected a finite score for piece 100, found NaN"),
    (PIECES, Piece(100, b"zzz", f32::NEG_INFINITY, 1), "expected a finite score for piece 100, found -inf"),
    (PIECES, Piece(100, b"zzz", -1.0, 0), "tokenizer.model, byte 1233: expected a piece type from 1 to 6, found 0"),
    (PIECES, Piece(100, b"zzz", -1.0, 7), "tokenizer.model, byte 1233: expected a piece type from 1 to 6, found 7"),
    (PIECES, Piece(100, b"zzz", -1.0, u64::MAX), "expected a piece type from 1 to 6, found 18446744073709551615"),
    (
        PIECES,
        Piece(100, b"zz\xff", -1.0, 1),
        "tokenizer.model, byte 1226: expected a piece in UTF-8, found other bytes",
    ),
    (PIECES, Piece(100, b"", -1.0, 1), "tokenizer.model: expected text for piece 100, found none; the file is damaged"),
    (PIECES, Piece(100, b"10", -1.0, 1), "expected each piece once, found \"10\" with the IDs 100 and 259"),
    (
        PIECES,
        Piece(100, LONG, -1.0, 1),
        "token 100: expected at most 1024 bytes of text in a unigram model, found more",
    ),
    (PIECES, Piece(0, b"<unk>", 0.0, 3), "tokenizer.model: expected one piece of type 2 (unknown), found none"),
    (PIECES, Piece(100, b"<unk2>", 0.0, 2), "expected one piece of type 2 (unknown), found the IDs 0 and 100"),
    (PIECES, Piece(100, b"<0x41>", 0.0, 6), "expected no byte pieces with byte_fallback false, found 1"),
    (PIECES, Piece(100, b"<0xZZ>", 0.0, 6), "expected <0x00> to <0xFF> for piece 100 of type 6 (byte), found \"<0xZZ"),
    (PIECES, Message(2, &[0x98, 2, 1]), "tokenizer.model: expected 256 byte pieces with byte_fallback true, found 0"),
    (PIECES, Message(2, &[0x18, 0]), "tokenizer.model: expected model type 1 (unigram) or 2 (BPE), found 0"),
    (PIECES, Message(2, &[0x18, 3]), "tokenizer.model: expected a unigram or BPE model, found a word model"),
    (PIECES, Message(2, &[0x18, 4]), "tokenizer.model: expected a unigram or BPE model, found a character model"),
    (
        PIECES,
        Message(2, &[0xc0, 1, 1]),
        "expected treat_whitespace_as_suffix false, found true; put the tokenizer.json",
    ),
    (PIECES, Message(3, &[0x12, 3, 4, 0, 0]), "byte 6711: character map: expected 4 bytes or more, found 3"),
    (
        PIECES,
        Message(3, &[0x12, 8, 252, 255, 255, 255, 0, 0, 0, 0]),
        "byte 6716: character map: expected 4294967292 bytes of units, found 4; the file is damaged",
    ),
    (PIECES, Message(3, &[0x12, 8, 4, 0, 0, 0, 0, 1, 0, 0]), "unit 0 of the character map: expected the offset of a"),
    (PIECES, Message(3, &[0x12, 8, 4, 0, 0, 0, 0, 4, 0, 0]), "unit 0 of the character map: expected a unit below 1"),
    (PIECES, Message(3, &[0x12, 8, 6, 0, 0, 0, 0, 0, 0, 0]), "character map: expected a size that is a multiple of 4"),
    (PIECES, Message(3, &[0x12, 9, 4, 0, 0, 0, 0, 0, 0, 0, 255]), "character map: expected texts in UTF-8, found"),
    (PIECES, Message(3, &[0x12, 0x7f, 0]), "tokenizer.model, byte 6708: expected 127 bytes, found 1"),
    (PIECES, Message(3, &[0x28, 0]), "tokenizer.model: expected escape_whitespaces true, found false"),
    (
        PIECES,
        Message(5, &[0x12, 2, 0, 0]),
        "tokenizer.model: expected no character map in denormalizer_spec, found one",
    ),
    (
        PIECES,
        Message(1, &[0x0a, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
        "tokenizer.model, byte 6717: expected 18446744073709551615 bytes, found 0",
    ),
    (PIECES, Message(1, &[0x0b]), "tokenizer.model, byte 6707: expected wire type 0, 1, 2 or 5, found 3"),
    (PIECES, Fixture(MODEL, "tokenizers/unigram-bytes/tokenizer.model"), "expected at most 384 tokens, the rows of"),
    (PIECES, Config("eos_token_id", "\"</s>\""), "eos_token_id in config.json: expected a token ID, found \"</s>\""),
    (
        PIECES,
        Json(CONFIG, "/added_tokens_decoder/5", r#"{"content": "<new>"}"#),
        "expected one token with ID 5, found \"<new>\" in tokenizer_config.json and \"bc\" in tokenizer.model",
    ),
    (PIECES, File(GENERATION, r#"{"eos_token_id": [2, "3"]}"#), "eos_token_id in generation_config.json: expected a"),
];
