//! Lies in GGUF files about the model and its tokenizer: the container is right, what its keys and tensors say is not.

use crate::case::{Call, Case};
use crate::gguf::{Lie, lies};
use crate::gguf_parts::{ARRAY, Parts, STRING, U32, U64, array, string};

const MODEL_READERS: &[Call] = &[Call::Run, Call::Verify];
const TEXT_READERS: &[Call] = &[Call::Tokenize, Call::Run];
const CONTAINER_READERS: &[Call] = &[Call::Inspect, Call::Show];

const MODEL: &[Lie] = &[
    ("tensor name in another encoding", |g, _| g.tensors[1].name = b"blk.\xff".to_vec()),
    ("no architecture", |g, _| g.remove("general.architecture")),
    ("unknown architecture", |g, _| g.set_text("general.architecture", "toaster")),
    ("empty architecture", |g, _| g.set_text("general.architecture", "")),
    ("architecture with control characters", |g, _| g.set_text("general.architecture", "\u{1b}]0;x\u{7}\u{202e}\n")),
    ("architecture of 100000 characters", |g, _| g.set_text("general.architecture", &"a".repeat(100_000))),
    ("architecture as number", |g, _| g.set_u32("general.architecture", 7)),
    ("no layers", |g, _| g.set_u32("qwen2.block_count", 0)),
    ("one layer less", |g, _| g.set_u32("qwen2.block_count", 1)),
    ("one layer more", |g, _| g.set_u32("qwen2.block_count", 3)),
    ("2^32-1 layers", |g, _| g.set_u32("qwen2.block_count", u32::MAX)),
    ("layers as text", |g, _| g.set_text("qwen2.block_count", "2")),
    ("layers missing", |g, _| g.remove("qwen2.block_count")),
    ("no heads", |g, _| g.set_u32("qwen2.attention.head_count", 0)),
    ("heads that do not divide", |g, _| g.set_u32("qwen2.attention.head_count", 3)),
    ("2^32-1 heads", |g, _| g.set_u32("qwen2.attention.head_count", u32::MAX)),
    ("2^63 heads", |g, _| g.set("qwen2.attention.head_count", U64, &(1_u64 << 63).to_le_bytes())),
    ("no KV heads", |g, _| g.set_u32("qwen2.attention.head_count_kv", 0)),
    ("KV heads that do not divide", |g, _| g.set_u32("qwen2.attention.head_count_kv", 3)),
    ("more KV heads than heads", |g, _| g.set_u32("qwen2.attention.head_count_kv", 8)),
    ("heads listed for one layer", |g, _| g.set("qwen2.attention.head_count", ARRAY, &array(U32, 1, &[4, 0, 0, 0]))),
    ("odd head size", |g, _| g.set_u32("qwen2.attention.key_length", 15)),
    ("head size 0", |g, _| g.set_u32("qwen2.attention.key_length", 0)),
    ("values of another size", |g, _| g.set_u32("qwen2.attention.value_length", 8)),
    ("width 0", |g, _| g.set_u32("qwen2.embedding_length", 0)),
    ("width one less", |g, _| g.set_u32("qwen2.embedding_length", 63)),
    ("width 2^31", |g, _| g.set_u32("qwen2.embedding_length", 1 << 31)),
    ("feed-forward 0", |g, _| g.set_u32("qwen2.feed_forward_length", 0)),
    ("feed-forward another", |g, r| g.set_u32("qwen2.feed_forward_length", r.between(97, 9999) as u32)),
    ("context 0", |g, _| g.set_u32("qwen2.context_length", 0)),
    ("epsilon NaN", |g, _| g.set_f32("qwen2.attention.layer_norm_rms_epsilon", f32::NAN)),
    ("epsilon infinite", |g, _| g.set_f32("qwen2.attention.layer_norm_rms_epsilon", f32::INFINITY)),
    ("epsilon 0", |g, _| g.set_f32("qwen2.attention.layer_norm_rms_epsilon", 0.0)),
    ("epsilon negative", |g, _| g.set_f32("qwen2.attention.layer_norm_rms_epsilon", -1e-6)),
    ("rope base NaN", |g, _| g.set_f32("qwen2.rope.freq_base", f32::NAN)),
    ("rope base 0", |g, _| g.set_f32("qwen2.rope.freq_base", 0.0)),
    ("rope base infinite", |g, _| g.set_f32("qwen2.rope.freq_base", f32::INFINITY)),
    ("rope dimensions odd", |g, _| g.set_u32("qwen2.rope.dimension_count", 7)),
    ("rope dimensions beyond the head", |g, _| g.set_u32("qwen2.rope.dimension_count", 32)),
    ("rope scaling unknown", |g, _| g.set_text("qwen2.rope.scaling.type", "origami")),
    ("rope factor 0", |g, _| {
        g.set_text("qwen2.rope.scaling.type", "linear");
        g.set_f32("qwen2.rope.scaling.factor", 0.0);
    }),
    ("rope factor NaN", |g, _| {
        g.set_text("qwen2.rope.scaling.type", "linear");
        g.set_f32("qwen2.rope.scaling.factor", f32::NAN);
    }),
    ("window of 2^32-1", |g, _| g.set_u32("qwen2.attention.sliding_window", u32::MAX)),
    ("experts", |g, _| g.set_u32("qwen2.expert_count", 8)),
    ("vocabulary one less", |g, _| g.set_u32("qwen2.vocab_size", 399)),
    ("vocabulary 0", |g, _| g.set_u32("qwen2.vocab_size", 0)),
    ("vocabulary 2^31", |g, _| g.set_u32("qwen2.vocab_size", 1 << 31)),
    ("tensor missing", |g, r| drop(g.tensors.remove(r.below(g.tensors.len())))),
    ("tensor renamed", |g, r| {
        let place = r.below(g.tensors.len());
        g.tensors[place].name.push(b'x');
    }),
    ("tensors that nobody knows", |g, _| {
        let mut tensor = g.tensors[0].clone();
        for number in 0..200 {
            tensor.name = format!("\u{202e}x{number}\n").into_bytes();
            tensor.offset = g.data.len() as u64;
            tensor.dimensions = vec![32];
            g.data.extend([0; 64]);
            g.tensors.push(tensor.clone());
        }
    }),
    ("tensor on its side", |g, _| g.tensor("blk.0.ffn_down.weight").dimensions.reverse()),
    ("tensor of integers", |g, _| g.tensor("output_norm.weight").dtype = 26),
    ("two layers exchanged by shape", |g, _| g.tensor("blk.1.attn_k.weight").dimensions = vec![32, 64]),
];

const SPLIT: &[Lie] = &[
    ("split in 2 under another name", |g, _| {
        g.set_u32("split.no", 0);
        g.set_u32("split.count", 2);
    }),
    ("split in 2^64-1", |g, _| g.set("split.count", U64, &u64::MAX.to_le_bytes())),
    ("split in 65535", |g, _| {
        g.set_u32("split.no", 0);
        g.set_u32("split.count", 65_535);
    }),
    ("split count as text", |g, _| g.set_text("split.count", "2")),
    ("split number beyond the count", |g, _| {
        g.set_u32("split.no", 7);
        g.set_u32("split.count", 2);
    }),
];

const TOKENS: &[Lie] = &[
    ("no tokens", |g, _| g.remove("tokenizer.ggml.tokens")),
    ("no merges", |g, _| g.remove("tokenizer.ggml.merges")),
    ("no kind of tokenizer", |g, _| g.remove("tokenizer.ggml.model")),
    ("unknown kind of tokenizer", |g, _| g.set_text("tokenizer.ggml.model", "\u{1b}[31mspam")),
    ("unknown way to split", |g, _| g.set_text("tokenizer.ggml.pre", "\u{202e}spam")),
    ("tokens as numbers", |g, _| g.set("tokenizer.ggml.tokens", ARRAY, &array(U32, 400, &[0; 1600]))),
    ("tokens all empty", |g, _| g.set("tokenizer.ggml.tokens", ARRAY, &array(STRING, 400, &[0; 3200]))),
    ("tokens all the same", |g, _| {
        g.set("tokenizer.ggml.tokens", ARRAY, &array(STRING, 400, &string(b"a").repeat(400)));
    }),
    ("types for one token", |g, _| g.set("tokenizer.ggml.token_type", ARRAY, &array(5, 1, &[1, 0, 0, 0]))),
    ("a type of token that is unknown", |g, _| g.set("tokenizer.ggml.token_type", ARRAY, &array(5, 400, &[99; 1600]))),
    ("merges as numbers", |g, _| g.set("tokenizer.ggml.merges", ARRAY, &array(U32, 1, &[0; 4]))),
    ("merge of unknown tokens", |g, _| merges(g, &["zzz yyy"])),
    ("merge of one part", |g, _| merges(g, &["zzz"])),
    ("merge that is empty", |g, _| merges(g, &[""])),
    ("end token beyond the vocabulary", |g, _| g.set_u32("tokenizer.ggml.eos_token_id", 400)),
    ("end token 2^32-1", |g, _| g.set_u32("tokenizer.ggml.eos_token_id", u32::MAX)),
    ("end token as text", |g, _| g.set_text("tokenizer.ggml.eos_token_id", "392")),
    ("normalizer that is no JSON", |g, _| g.set_text("trueup.tokenizer.normalizer", "{")),
    ("normalizer that is a bomb", |g, _| g.set_text("trueup.tokenizer.normalizer", &"[".repeat(100_000))),
    ("normalizer unknown", |g, _| g.set_text("trueup.tokenizer.normalizer", "{\"type\":\"\\u001b[2J\"}")),
];

/// All cases about what keys and tensors mean.
pub fn cases(seed: u64, good: &[u8]) -> Vec<Case> {
    let parts = Parts::read(good);
    let mut cases = lies(seed, &parts, MODEL, MODEL_READERS, CONTAINER_READERS);
    cases.extend(lies(seed, &parts, SPLIT, &[Call::Inspect, Call::Run], &[]));
    cases.extend(lies(seed, &parts, TOKENS, TEXT_READERS, CONTAINER_READERS));
    cases
}

fn merges(parts: &mut Parts, merges: &[&str]) {
    let items: Vec<u8> = merges.iter().flat_map(|merge| string(merge.as_bytes())).collect();
    parts.set("tokenizer.ggml.merges", ARRAY, &array(STRING, merges.len() as u64, &items));
}
