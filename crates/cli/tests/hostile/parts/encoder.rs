//! Encoders: BERT, its pooling and its vocabulary.

use super::Change::{Config, File, Key, NoFile, NoKey, NoTensor, Shape, Tensor};
use super::Given::{Bool, F32, I32, Text, U32, U32s};
use super::{Part, Row};
use crate::case::Call;

pub const PART: Part = Part { name: "encoders", files: FILES, folders: FOLDERS, calls: &[Call::Embed] };

const BERT: &str = "encoders/bert";
/// Its vocabulary is `vocab.txt` alone.
const CASED: &str = "encoders/bert-cased";
const POOLING: &str = "1_Pooling/config.json";

const FILES: &[Row] = &[
    (BERT, NoTensor("token_embd_norm.bias"), "tensor token_embd_norm.bias is missing"),
    (BERT, NoTensor("token_types.weight"), "tensor token_types.weight is missing"),
    (BERT, NoTensor("position_embd.weight"), "tensor position_embd.weight is missing"),
    (BERT, NoTensor("blk.1.layer_output_norm.weight"), "tensor blk.1.layer_output_norm.weight is missing"),
    (BERT, Tensor("output.weight", &[64, 400]), "tensor output.weight is not known to bert"),
    (BERT, Tensor("blk.0.ffn_gate.weight", &[64, 96]), "tensor blk.0.ffn_gate.weight is not known to bert"),
    (BERT, Shape("position_embd.weight", &[64, 127]), "position_embd.weight: expected shape [64, 128], found [64"),
    (BERT, Shape("token_types.weight", &[64]), "tensor token_types.weight: expected shape [64, 2], found [64]"),
    (BERT, NoKey("attention.causal"), "key bert.attention.causal: expected false for an encoder, found no such key"),
    (BERT, Key("attention.causal", Bool(true)), "key bert.attention.causal: expected false for an encoder"),
    (BERT, Key("attention.causal", U32(0)), "metadata: key bert.attention.causal: expected a bool, found u32 0"),
    (BERT, Key("pooling_type", U32(4)), "key bert.pooling_type: expected 0 (none), 1 (mean), 2 (first token)"),
    (BERT, Key("pooling_type", Text("mean")), "pooling_type: expected a non-negative integer, found string \"mean\""),
    (BERT, Key("pooling_type", I32(-1)), "key bert.pooling_type: expected a non-negative integer, found i32 -1"),
    (BERT, Key("context_length", U32(129)), "position_embd.weight: expected shape [64, 129], found [64, 128]"),
    (BERT, Key("context_length", U32(0)), "key bert.context_length: expected 1 to 2147483647, found 0"),
    (
        BERT,
        Key("attention.head_count", U32(5)),
        "number of KV heads: expected a divisor of 5 (the number of attention heads)",
    ),
    (BERT, Key("attention.head_count", U32s(&[4])), "expected 2 integers, one for each layer, found 1"),
    (BERT, Key("attention.layer_norm_epsilon", F32(0.0)), "layer_norm_epsilon: expected a positive number, found 0.0"),
    (BERT, Key("block_count", U32(1)), "expected 1 layer (bert.block_count), found 16 tensors of other layers"),
    (BERT, Key("tokenizer.ggml.token_type_count", U32(3)), "token_types.weight: expected shape [64, 3], found [64"),
    (BERT, Key("tokenizer.ggml.token_type_count", U32(0)), "token_type_count: expected 1 to 65536, found 0"),
    (BERT, Key("tokenizer.ggml.seperator_token_id", U32(400)), "seperator_token_id: expected a token ID from 0"),
    (BERT, Key("tokenizer.ggml.normalizer.lowercase", U32(1)), "normalizer.lowercase: expected a bool, found u32 1"),
];

const FOLDERS: &[Row] = &[
    (BERT, NoTensor("embeddings.LayerNorm.bias"), "tensor embeddings.LayerNorm.bias is missing"),
    (BERT, NoTensor("encoder.layer.1.output.LayerNorm.weight"), "encoder.layer.1.output.LayerNorm.weight is missing"),
    (BERT, Tensor("classifier.weight", &[2, 64]), "tensor classifier.weight is not known to BertModel"),
    (BERT, Shape("embeddings.position_embeddings.weight", &[127, 64]), "expected shape [128, 64], found [127, 64]"),
    (BERT, Config("type_vocab_size", "0"), "config.json: type_vocab_size: expected 1 to 65536, found 0"),
    (BERT, Config("type_vocab_size", "3"), "token_type_embeddings.weight: expected shape [3, 64], found [2, 64]"),
    (BERT, Config("hidden_act", "\"relu\""), "config.json: hidden_act: expected \"gelu\", found \"relu\""),
    (BERT, Config("position_embedding_type", "\"relative_key\""), "position_embedding_type: expected \"absolute\""),
    (BERT, Config("num_attention_heads", "5"), "num_attention_heads: expected a divisor of hidden_size (64)"),
    (BERT, Config("layer_norm_eps", "0"), "config.json: layer_norm_eps: expected a positive number, found 0"),
    (BERT, Config("is_decoder", "true"), "config.json: is_decoder: expected false, found true"),
    (BERT, File("modules.json", "{}"), "modules.json: expected a list of modules, found another value; get the file"),
    (BERT, File("modules.json", "[7]"), "modules.json: expected an object for each module, found another value"),
    (BERT, File("modules.json", r#"[{"path": "../etc"}]"#), "expected a directory name of letters, digits, _ and -"),
    (BERT, File(POOLING, "[]"), "1_Pooling/config.json: expected a JSON object, found an array; get the file again"),
    (BERT, File(POOLING, "{}"), "1_Pooling/config.json: expected exactly one of pooling_mode_mean_tokens"),
    (BERT, File(POOLING, r#"{"pooling_mode_max_tokens": true}"#), "to be true, found pooling_mode_max_tokens; other"),
    (BERT, NoFile(POOLING), "1_Pooling/config.json: the file is missing; get all files of the model"),
    (CASED, File("vocab.txt", ""), "vocab.txt: expected a token on each line, found none; get the file"),
    (CASED, File("vocab.txt", "a\nb\n"), "expected one token with ID 0, found \"[PAD]\" in tokenizer_config.json"),
    (CASED, NoFile("vocab.txt"), "expected a tokenizer (tokenizer.json, "),
    (CASED, File("tokenizer_config.json", r#"{"do_lower_case": 1}"#), "do_lower_case: expected true or false"),
    (CASED, File("tokenizer_config.json", r#"{"unk_token": 3}"#), "unk_token: expected a string, or an object with"),
];
