//! Encoder-decoder models: T5 and UMT5.

use super::Change::{Config, Key, NoKey, NoTensor, Shape, Tensor};
use super::Given::{F32, I32, Text, U32, U32s};
use super::{Part, Row};
use crate::case::Call;

pub const PART: Part = Part { name: "encoder-decoder models", files: FILES, folders: FOLDERS, calls: &[Call::Run] };

const T5: &str = "encoder-decoders/t5";
/// Every layer has a table of buckets.
const UMT5: &str = "encoder-decoders/umt5";

const FILES: &[Row] = &[
    (T5, NoTensor("enc.output_norm.weight"), "tensor enc.output_norm.weight is missing"),
    (T5, NoTensor("dec.blk.1.cross_attn_k.weight"), "tensor dec.blk.1.cross_attn_k.weight is missing"),
    (T5, NoTensor("enc.blk.0.attn_rel_b.weight"), "tensor enc.blk.0.attn_rel_b.weight is missing"),
    (T5, NoTensor("token_embd.weight"), "tensor token_embd.weight is missing"),
    (UMT5, NoTensor("enc.blk.1.attn_rel_b.weight"), "tensor enc.blk.1.attn_rel_b.weight is missing"),
    (UMT5, NoTensor("enc.blk.1.ffn_gate.weight"), "tensor enc.blk.1.ffn_gate.weight is missing"),
    (T5, Tensor("dec.blk.0.ffn_gate.weight", &[64, 96]), "tensor dec.blk.0.ffn_gate.weight is not known to t5"),
    (T5, Tensor("enc.blk.0.cross_attn_q.weight", &[64, 64]), "tensor enc.blk.0.cross_attn_q.weight is not known"),
    (T5, Tensor("dec.blk.1.attn_rel_b.weight", &[4, 32]), "tensor enc.blk.1.attn_rel_b.weight is missing"),
    (T5, Shape("enc.blk.0.attn_rel_b.weight", &[32, 4]), "attn_rel_b.weight: expected shape [4, 32], found [32, 4]"),
    (T5, Shape("dec.blk.0.cross_attn_v.weight", &[64, 63]), "cross_attn_v.weight: expected shape [64, 64]"),
    (T5, Key("decoder_block_count", U32(1)), "expected 1 layer (t5.decoder_block_count), found 13 tensors of other"),
    (T5, Key("decoder_block_count", U32(3)), "tensor dec.blk.2.attn_norm.weight is missing"),
    (T5, Key("decoder_block_count", U32(60_000)), "expected at most 48 (the number of tensors), found 60000"),
    (T5, Key("decoder_block_count", Text("2")), "decoder_block_count: expected a non-negative integer, found string"),
    (T5, Key("block_count", U32(1)), "expected 1 layer (t5.block_count), found 8 tensors of other layers"),
    (T5, NoKey("attention.relative_buckets_count"), "relative_buckets_count: expected a non-negative integer"),
    (T5, Key("attention.relative_buckets_count", U32(0)), "relative_buckets_count: expected 1 to 65536, found 0"),
    (T5, Key("attention.relative_buckets_count", U32(2)), "relative attention buckets: expected at least 4, found 2"),
    (T5, Key("attention.relative_buckets_count", U32(16)), "attn_rel_b.weight: expected shape [4, 16], found [4, 32]"),
    (T5, Key("attention.relative_distance_max", U32(16)), "relative_distance_max: maximum relative attention"),
    (T5, Key("decoder_start_token_id", U32(336)), "key t5.decoder_start_token_id: decoder start token:"),
    (T5, Key("decoder_start_token_id", I32(-1)), "decoder_start_token_id: expected a non-negative integer, found i32"),
    (T5, Key("attention.head_count", U32s(&[4, 4, 4])), "expected 2 integers, one for each layer, found 3"),
    (T5, Key("attention.key_length", U32(15)), "enc.blk.0.attn_q.weight: expected shape [64, 60], found [64, 64]"),
    (T5, Key("attention.layer_norm_rms_epsilon", F32(-1.0)), "rms_epsilon: expected a positive number, found -1.0"),
];

const FOLDERS: &[Row] = &[
    (T5, NoTensor("decoder.block.0.layer.1.EncDecAttention.k.weight"), "0.layer.1.EncDecAttention.k.weight is"),
    (T5, NoTensor("shared.weight"), "tensor shared.weight is missing"),
    (T5, NoTensor("decoder.final_layer_norm.weight"), "tensor decoder.final_layer_norm.weight is missing"),
    (T5, Shape("decoder.block.1.layer.2.DenseReluDense.wo.weight", &[64, 95]), "expected shape [64, 96], found [64"),
    (T5, Tensor("encoder.block.1.layer.1.DenseReluDense.wi_0.weight", &[96, 64]), "wi_0.weight is not known"),
    (T5, Config("num_decoder_layers", "3"), "tensor decoder.block.2.layer.0.layer_norm.weight is missing"),
    (T5, Config("num_decoder_layers", "-2"), "config.json: num_decoder_layers: expected a positive integer, found -2"),
    (T5, Config("num_layers", "0"), "config.json: num_layers: expected 1 to 65536, found 0"),
    (T5, Config("d_kv", "15"), "SelfAttention.q.weight: expected shape [60, 64], found [64, 64]"),
    (T5, Config("feed_forward_proj", "\"gated-silu\""), "feed_forward_proj: expected \"relu\" or \"gated-gelu\""),
    (T5, Config("relative_attention_num_buckets", "2"), "relative attention buckets: expected at least 4, found 2"),
    (T5, Config("relative_attention_max_distance", "16"), "relative_attention_max_distance: maximum relative"),
    (T5, Config("decoder_start_token_id", "336"), "decoder_start_token_id: decoder start token: expected an ID"),
    (T5, Config("tie_word_embeddings", "false"), "tensor lm_head.weight is missing; if the model uses its embedding"),
];
