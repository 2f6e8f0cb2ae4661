//! The cases: a rule, what its finding must say, and the damaged model. The first case of a rule is its example in
//! docs/doctor.md.

use super::{folders, gguf_files, root};
use std::path::{Path, PathBuf};
use trueup_blocks::DType;
use trueup_convert::{Options, convert};
use trueup_formats::{OpenOptions, open};
use trueup_quantize::{NoProgress, Recipe};

/// A folder that is removed behind a test.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    pub fn new() -> Scratch {
        Scratch(tempfile::tempdir().expect("a scratch directory"))
    }

    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    /// A folder of a checkpoint as GGUF, split where it passes a size; the path of the first file.
    pub fn convert(&self, source: &Path, name: &str, dtype: Option<DType>, split: Option<u64>) -> PathBuf {
        let target = self.folder().join(name);
        let options = Options { recipe: Recipe::new(dtype), split: split.into(), ..Options::default() };
        let source = open(source, &OpenOptions::default()).expect("a fixture");
        let report = convert(source.as_ref(), &target, &options, &NoProgress).expect("a fixture is converted");
        report.files.into_iter().next().expect("a file")
    }

    /// A fixture as GGUF.
    pub fn fixture(&self, name: &str) -> PathBuf {
        let folder =
            if name == "stories-1M" { "fixtures/stories-1M".to_owned() } else { format!("fixtures/models/{name}") };
        self.convert(&root().join(folder), "model.gguf", None, None)
    }
}

/// A damaged model and what is said of it.
pub struct Case {
    pub rule: &'static str,
    pub words: &'static [&'static str],
    pub make: fn(&Scratch) -> PathBuf,
}

const fn case(rule: &'static str, words: &'static [&'static str], make: fn(&Scratch) -> PathBuf) -> Case {
    Case { rule, words, make }
}

/// Every damage.
pub const CASES: &[Case] = &[
    case("refused", &["expected model.safetensors", "found neither"], folders::no_weights),
    case("file-missing", &["config.json"], folders::no_config),
    case("file-missing", &["model-00002-of-00002.safetensors"], folders::shard_missing),
    case("file-unreadable", &["tokenizer_config.json", "line 1"], folders::tokenizer_config_broken),
    case("file-unreadable", &["tokenizer.json", "line 1, column 1: expected valid JSON, found the end"], |s| {
        folders::with_text(s, "tokenizer.json", "{")
    }),
    case("lfs-pointer", &["model-00002-of-00003.gguf", "a file of 12345 bytes"], gguf_files::part_is_pointer),
    case("lfs-pointer", &["model-00002-of-00002.safetensors", "12345"], folders::shard_is_pointer),
    case("lfs-pointer", &["config.json", "12345"], folders::config_is_pointer),
    case("lfs-pointer", &["tokenizer.json", "12345"], |s| folders::with_text(s, "tokenizer.json", super::POINTER)),
    case("lfs-pointer", &["model.safetensors.index.json"], |s| {
        folders::with_text(s, "model.safetensors.index.json", super::POINTER)
    }),
    case("web-page", &["model-00002-of-00002.safetensors", "web page"], folders::shard_is_page),
    case("web-page", &["tokenizer.json"], |s| folders::with_text(s, "tokenizer.json", super::PAGE)),
    case("header-broken", &["model.gguf"], gguf_files::one_tensor_more),
    case("alignment-invalid", &["general.alignment", "33"], gguf_files::alignment),
    case("tensor-twice", &["token_embd.weight", "twice"], gguf_files::name_twice),
    case("file-unreadable", &["model-00002-of-00003.gguf", "same file as model-00001"], gguf_files::part_linked),
    case("file-unreadable", &["model-00002-of-00002.safetensors", "same file as"], folders::shard_linked),
    case("type-unknown", &["blk.0.ffn_up.weight", "type 4"], gguf_files::retired_type),
    case("type-unknown", &["F8_E4M3"], folders::unread_type),
    case("shape-invalid", &["blk.0.ffn_up.weight", "dimension of 0"], gguf_files::empty_dimension),
    case("rows-not-blocks", &["blk.0.ffn_up.weight", "blocks of 32", "rows of 33"], gguf_files::rows_of_33),
    case("tensor-misaligned", &["output_norm.weight", "multiple of 32"], gguf_files::misaligned),
    case("tensor-outside-file", &["output_norm.weight", "inside the file"], gguf_files::cut_short),
    case("tensor-outside-file", &["model.safetensors", "inside the file"], folders::cut_short),
    case("tensors-overlap", &["overlap"], gguf_files::overlap),
    case("tensors-overlap", &["model.norm.weight", "overlap"], folders::overlap),
    case("bytes-unowned", &["model.safetensors", "after the last tensor"], folders::bytes_after),
    case("bytes-after-tensors", &["model.gguf", "64 bytes"], gguf_files::bytes_after),
    case("bytes-after-tensors", &["1 byte after the last tensor"], gguf_files::byte_after),
    case("index-disagrees", &["model.safetensors.index.json"], folders::index_exchanged),
    case("split-scale-broken", &["trueup.layout", "origami"], gguf_files::layout),
    case("not-the-first-file", &["model-00002-of-00003.gguf", "is model-00001-of-00003.gguf"], gguf_files::later_part),
    case("part-missing", &["model-00002-of-00003.gguf"], gguf_files::part_missing),
    case("part-missing", &["model-00001-of-00003.gguf", "contains the metadata"], gguf_files::first_part_missing),
    case(
        "part-number-wrong",
        &["model-00002-of-00003.gguf", "split.no", "expected 1", "found 2"],
        gguf_files::parts_exchanged,
    ),
    case(
        "part-count-differs",
        &["model-00002-of-00003.gguf", "split.count", "expected 3", "found 4"],
        gguf_files::part_count,
    ),
    case("part-tensors-wrong", &["split.tensors.count", "found 7"], gguf_files::part_tensors),
    case(
        "part-alignment-differs",
        &["model-00002-of-00003.gguf", "expected 32", "found 16"],
        gguf_files::part_alignment,
    ),
    case("parts-differ", &["general.name", "other"], gguf_files::part_of_other_model),
    case("parts-differ", &["version 3", "found 2"], gguf_files::part_version),
    case("tensor-in-two-files", &["model-00002-of-00003.gguf", "token_embd.weight"], gguf_files::part_repeats),
    case("file-of-another-set", &["model-00001-of-00009.gguf"], gguf_files::part_of_other_set),
    case("file-of-another-set", &["model-00007-of-00009.safetensors"], folders::shard_of_other_set),
    case("second-set-of-weights", &["model.safetensors", "the sets differ in tensor"], folders::two_sets),
    case("weights-stored-twice", &["model.safetensors", "the same tensors"], folders::equal_sets),
    case("index-stale", &["model-00002-of-00002.safetensors", "model.safetensors is used"], folders::stale_index),
    case("adapter-in-model-folder", &["adapter_config.json", "a LoRA adapter of org/base"], folders::adapter),
    case("index-size-differs", &["metadata.total_size", "found 12"], folders::index_size),
    case("not-a-model", &["the image or audio encoder of a multimodal model (mmproj)"], gguf_files::projector),
    case("not-a-model", &["a LoRA adapter of Base"], gguf_files::adapter),
    case("architecture-missing", &["general.architecture"], gguf_files::no_architecture),
    case("architecture-missing", &["architectures"], folders::no_architecture),
    case("architecture-not-known", &["toaster", "trueup convert --help"], gguf_files::unknown_architecture),
    case("checkpoint-quantized", &["quantization_config", "gptq"], folders::quantized),
    case("model-parameters-invalid", &["divisor of 3"], gguf_files::heads),
    case("no-tensors", &["model.gguf"], gguf_files::no_tensors),
    case("tensor-missing", &["blk.1.ffn_up.weight"], gguf_files::tensor_missing),
    case("tensor-missing", &["model.layers.1.mlp.up_proj.weight"], folders::tensor_renamed),
    case("layer-count-differs", &["qwen2.block_count", "blk.1.attn_norm.weight"], gguf_files::layers),
    case("tensor-unknown", &["blk.1.ffn_upward.weight"], gguf_files::tensor_renamed),
    case("tensor-shape-wrong", &["blk.0.ffn_down.weight", "[96, 64]", "[64, 96]"], gguf_files::on_its_side),
    case("tensor-type-wrong", &["output_norm.weight", "i32"], gguf_files::of_integers),
    case("epsilon-odd", &["qwen2.attention.layer_norm_rms_epsilon", "0.5"], gguf_files::epsilon),
    case("rope-base-odd", &["qwen2.rope.freq_base", "found 2"], gguf_files::rope_base),
    case("rope-base-odd", &["rope_theta", "found 2"], folders::rope_base),
    case("rope-scaling-odd", &["factor of at least 1", "0.25"], gguf_files::rope_factor),
    case("rope-scaling-odd", &["at most 256", "found 4096"], folders::yarn_context),
    case("context-odd", &["qwen2.context_length", "found 8"], gguf_files::context),
    case("window-without-effect", &["sliding_window", "512", "256"], folders::window),
    case("tokenizer-missing", &["tokenizer"], folders::no_tokenizer),
    case("tokenizer-not-known", &["tokenizer.ggml.model", "rwkv"], gguf_files::unknown_tokenizer),
    case("tokenizer-refused", &["tokenizer.ggml.merges"], gguf_files::no_merges),
    case(
        "tokenizer-refused",
        &["tokenizer.json", "from 0 to 390, the rows of the embedding"],
        folders::vocabulary_smaller,
    ),
    case("tokenizer-refused", &["eos_token_id in generation_config.json", "found \"</s>\""], |s| {
        folders::ends(s, "</s>".into())
    }),
    case("tokenizer-fails", &["tokenizer", "expected at most 73216 bytes of output"], folders::doubling_normalizers),
    case("pre-tokenizer-missing", &["tokenizer.ggml.pre", "the key is missing"], gguf_files::no_pre),
    case("pre-tokenizer-missing", &["tokenizer.ggml.pre", "\"default\""], gguf_files::default_pre),
    case("token-lists-differ", &["tokenizer.ggml.token_type", "400 tokens", "found 1"], gguf_files::one_type),
    case("vocabulary-size", &["tokenizer.ggml.tokens", "399", "400"], gguf_files::row_less),
    case("vocabulary-padded", &["31606 of 32000 rows"], folders::rows_without_tokens),
    case("token-type-unknown", &["tokenizer.ggml.token_type", "99", "element [0]"], gguf_files::types_of_99),
    case("score-not-finite", &["tokenizer.ggml.scores", "NaN", "element [300]"], gguf_files::score),
    case("token-repeated", &["tokenizer.ggml.tokens", "token 301", "token 300"], gguf_files::token_repeated),
    case("token-empty", &["tokenizer.ggml.tokens", "token 300 is empty"], gguf_files::tokens_empty),
    case("merge-unknown", &["tokenizer.ggml.merges", "zzz"], gguf_files::merge),
    case("role-outside-vocabulary", &["tokenizer.ggml.eos_token_id", "400"], gguf_files::end_outside),
    case("role-outside-vocabulary", &["generation_config.json", "pad_token_id", "7000"], folders::padding_outside),
    case("role-token-unknown", &["eos_token", "<nope>"], folders::end_unknown),
    case("eos-missing", &["tokenizer.ggml.eos_token_id", "ends generation"], gguf_files::no_end),
    case("eos-not-control", &["token 5,", "normal"], gguf_files::end_of_text),
    case("eos-differs", &["generation_config.json [390]", "392"], folders::ends_differ),
    case("bos-differs", &["generation_config.json [3]"], folders::begins_differ),
    case("stored-type-differs", &["expected f32", "bf16"], folders::dtype),
    case("template-refused", &["tokenizer.chat_template"], |s| gguf_files::template(s, "{% if %}")),
    case("template-fails", &["no such talk"], |s| gguf_files::template(s, "{{ raise_exception('no such talk') }}")),
    case("template-drops-turn", &["role assistant"], |s| {
        gguf_files::template(s, "{% for m in messages if m.role != 'assistant' %}{{ m.content }}<|im_end|>{% endfor %}")
    }),
    case("template-without-system", &["ignores system messages"], |s| s.fixture("stories-1M")),
    case("template-without-system", &["rejects system messages", "no system"], |s| {
        gguf_files::template(
            s,
            "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}\
             {{ m.content }}<|im_end|>{% endfor %}",
        )
    }),
    case("template-token-unknown", &["<\\|turn\\|>"], |s| {
        gguf_files::template(s, "{% for m in messages %}{{ '<|turn|>' + m.content }}<|im_end|>{% endfor %}")
    }),
    case("template-role-missing", &["bos_token"], |s| {
        gguf_files::template(s, "{{ bos_token }}{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}")
    }),
    case("end-of-turn-missing", &["<\\|im_start\\|>", "does not end"], |s| {
        gguf_files::template(s, "{% for m in messages %}{{ m.content }}<|im_start|>{% endfor %}")
    }),
    case("end-of-turn-missing", &["not an end-of-generation token"], |s| {
        gguf_files::template(s, "{% for m in messages %}{{ m.content }} over.{% endfor %}")
    }),
    case(
        "end-token-type",
        &["tokenizer.ggml.token_type", "<\\|im_end\\|>", "type 4, expected 3"],
        gguf_files::end_type,
    ),
    case("template-writes-bos", &["BOS"], |s| s.fixture("llama3")),
    case("not-finite", &["blk.0.ffn_up.weight", "element [3, 2]", "first of 2 "], gguf_files::not_finite),
    case("not-finite", &["blk.0.ffn_up.weight", "element [32, 1]", "1 block"], gguf_files::scale_not_finite),
    case("not-finite", &["model.norm.weight", "element [1]", "the value is NaN"], folders::not_finite),
    case("not-finite", &["blk.0.ffn_up.weight", "element [0, 5]", "the scales of 1 block"], |s| {
        gguf_files::block_scale(s, DType::Q4K, 2, 0x7e00)
    }),
    case("not-finite", &["element [0, 5]", "the scales of 1 block"], |s| {
        gguf_files::block_scale(s, DType::Q6K, 208, 0xfc00)
    }),
    case("not-finite", &["element [0, 5]", "the scales of 1 block"], |s| {
        gguf_files::block_scale(s, DType::Iq4Xs, 0, 0x7c00)
    }),
    case("not-finite", &["element [160, 0]", "first of 32 "], |s| gguf_files::block_byte(s, DType::Mxfp4, 0, 0xff)),
    case("not-finite", &["element [80, 1]", "first of 16 "], |s| gguf_files::block_byte(s, DType::Nvfp4, 1, 0x7f)),
    case(
        "unused-code",
        &["blk.0.ffn_up.weight", "element [98, 5]", "not valid in tq2_0, the first of them 0xc5"],
        |s| gguf_files::block_byte(s, DType::Tq2_0, 2, 0xc5),
    ),
    case("unused-code", &["element [3, 5]", "not valid in tq1_0, the first of them 0x14"], |s| {
        gguf_files::block_byte(s, DType::Tq1_0, 3, 0x14)
    }),
    case("unused-code", &["element [241, 5]", "not valid in tq1_0, the first of them 0x02"], |s| {
        gguf_files::block_byte(s, DType::Tq1_0, 49, 0x02)
    }),
    case("rope-factor-invalid", &["rope_freqs.weight", "element [0]"], gguf_files::rope_factors),
    case("zero-tensor", &["blk.1.ffn_up.weight", "6144"], gguf_files::zero_tensor),
    case("zero-bias", &["blk.1.attn_k.bias"], gguf_files::zero_bias),
    case("zero-rows", &["blk.1.ffn_up.weight", "48 of 96 rows", "row 48"], gguf_files::zero_rows),
    case("zero-rows", &["blk.0.attn_q.weight", "32 of 64 rows", "row 0"], gguf_files::zero_block_rows),
    case("zero-token-rows", &["token_embd.weight", "20 of 400 rows", "row 100"], gguf_files::zero_tokens),
    case("subnormal-values", &["blk.0.ffn_up.weight", "bf16"], gguf_files::subnormal_values),
    case("subnormal-scales", &["blk.0.attn_q.weight", "100%"], gguf_files::subnormal_scales),
    case("value-far-out", &["blk.0.ffn_up.weight", "element [5, 7]"], gguf_files::far_out),
    case("value-far-out", &["output_norm.weight", "element [9]"], gguf_files::norm_far_out),
    case("layer-out-of-scale", &["blk.3.ffn_up.weight", "6 layers"], gguf_files::out_of_scale),
    case("values-not-read", &["blk.0.ffn_up.weight", "i8"], gguf_files::not_read),
    case("file-sparse", &["model.gguf", "8590065408"], gguf_files::sparse),
    case("head-repeats-embedding", &["output.weight", "bytes could be saved"], gguf_files::head_repeated),
    case(
        "packed-code-invalid",
        &["layers.1.self_attn.q_proj.weight", "element [5, 2]", "0x1e in the first of 2 bytes"],
        folders::packed_code,
    ),
    case("packed-scale-invalid", &["layers.0.mlp.up_proj.weight_scale", "found 0"], |s| folders::packed_scale(s, 0.0)),
    case("packed-scale-invalid", &["layers.0.mlp.up_proj.weight_scale", "found inf"], |s| {
        folders::packed_scale(s, f32::INFINITY)
    }),
    case("packed-scale-far-out", &["layers.0.mlp.up_proj.weight_scale", "of the 14 scales"], |s| {
        folders::packed_scale(s, 1e20)
    }),
    case("packed-one-value", &["layers.1.self_attn.q_proj.weight", "values are -1"], folders::packed_zeros),
    case("tokenizer-files-disagree", &["tokenizer.json is used instead of tokenizer.model"], folders::other_pieces),
    case("head-ignored", &["lm_head.weight", "model.embed_tokens.weight"], folders::head_ignored),
    case("tensor-repeated", &["blk.1.ffn_up.weight", "blk.0.ffn_up.weight"], gguf_files::tensor_repeated),
    case(
        "weights-on-grid",
        &["blk.0.ffn_up.weight", "q4_0 stores all weights without loss; the same applies to 1 other tensor"],
        gguf_files::on_grid,
    ),
];
