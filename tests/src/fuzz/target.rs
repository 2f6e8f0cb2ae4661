//! The list of targets. A new one is a line here, and a file in `fuzz/fuzz_targets`.

mod attestation;
mod checkpoint;
mod gguf;
mod importance;
mod logits;
mod model_spec;
mod modules;
mod report;
mod template;
mod text;
mod tokenizer;
mod trace;
mod vocabulary_files;
mod words;

use super::grammar::{
    flm, gguf as gguf_grammar, json, lines, llama2c, protobuf, safetensors, template as template_grammar, tokenizer_bin,
};
use super::{Target, grammar, seeds};
use words::{
    ATTESTATION_WORDS, CONFIG_WORDS, MODEL_WORDS, RANKS_WORDS, REPORT_WORDS, TEMPLATE_WORDS, TEXT_WORDS,
    TOKENIZER_WORDS,
};

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "gguf", seeds: seeds::ggufs, grammar: gguf_grammar, words: MODEL_WORDS, run: gguf::whole },
    Target {
        name: "gguf_split",
        seeds: || vec![seeds::tiny_split()],
        grammar: |bytes| grammar::frames(bytes, &[gguf_grammar, gguf_grammar]),
        words: MODEL_WORDS,
        run: gguf::split,
    },
    Target {
        name: "safetensors",
        seeds: || vec![seeds::tiny_folder("qwen2").weights, seeds::verified().trace.clone()],
        grammar: safetensors,
        words: MODEL_WORDS,
        run: checkpoint::safetensors,
    },
    Target {
        name: "safetensors_folder",
        seeds: || {
            let models = seeds::MODELS.map(seeds::tiny_frames).to_vec();
            [models, seeds::frames_of_parts(), vec![seeds::tiny_frames_split("qwen3")]].concat()
        },
        grammar: |bytes| grammar::frames(bytes, &[json, json, json, safetensors, safetensors]),
        words: MODEL_WORDS,
        run: checkpoint::folder,
    },
    Target {
        name: "llama2c",
        seeds: || vec![seeds::tiny_llama2c(0, 0), seeds::tiny_llama2c(1, 0), seeds::tiny_llama2c(2, 8)],
        grammar: |bytes| grammar::frames(bytes, &[llama2c, tokenizer_bin]),
        words: TOKENIZER_WORDS,
        run: checkpoint::llama2c,
    },
    Target {
        name: "flm",
        seeds: || [0, 7, 3, 8, 9].map(seeds::tiny_flm).to_vec(),
        grammar: flm,
        words: MODEL_WORDS,
        run: checkpoint::flm,
    },
    Target {
        name: "importance",
        seeds: importance::seeds,
        grammar: importance::grammar,
        words: MODEL_WORDS,
        run: importance::run,
    },
    Target { name: "logits", seeds: logits::seeds, grammar: logits::grammar, words: &[], run: logits::run },
    Target { name: "model_spec", seeds: model_spec::seeds, grammar: json, words: MODEL_WORDS, run: model_spec::run },
    Target {
        name: "tokenizer_json",
        seeds: tokenizer::json_seeds,
        grammar: json,
        words: TOKENIZER_WORDS,
        run: tokenizer::json,
    },
    Target {
        name: "tokenizer_model",
        seeds: tokenizer::model_seeds,
        grammar: protobuf,
        words: TOKENIZER_WORDS,
        run: tokenizer::model,
    },
    Target {
        name: "tokenizer_ranks",
        seeds: tokenizer::ranks_seeds,
        grammar: lines,
        words: RANKS_WORDS,
        run: tokenizer::ranks,
    },
    Target {
        name: "tokenizer_config",
        seeds: vocabulary_files::config_seeds,
        grammar: vocabulary_files::config_grammar,
        words: CONFIG_WORDS,
        run: vocabulary_files::config,
    },
    Target {
        name: "vocab_txt",
        seeds: vocabulary_files::vocab_txt_seeds,
        grammar: |bytes| grammar::frames(bytes, &[json, lines]),
        words: CONFIG_WORDS,
        run: vocabulary_files::vocab_txt,
    },
    Target {
        name: "vocab_json",
        seeds: vocabulary_files::vocab_json_seeds,
        grammar: |bytes| grammar::frames(bytes, &[json, json, lines]),
        words: CONFIG_WORDS,
        run: vocabulary_files::vocab_json,
    },
    Target {
        name: "tiktoken",
        seeds: vocabulary_files::tiktoken_seeds,
        grammar: |bytes| grammar::frames(bytes, &[json, lines]),
        words: RANKS_WORDS,
        run: vocabulary_files::tiktoken,
    },
    Target {
        name: "ice_text",
        seeds: vocabulary_files::ice_text_seeds,
        grammar: |bytes| grammar::frames(bytes, &[json, protobuf]),
        words: CONFIG_WORDS,
        run: vocabulary_files::ice_text,
    },
    Target {
        name: "modules",
        seeds: modules::seeds,
        grammar: modules::grammar,
        words: CONFIG_WORDS,
        run: modules::run,
    },
    Target {
        name: "template",
        seeds: template::seeds,
        grammar: template_grammar,
        words: TEMPLATE_WORDS,
        run: template::run,
    },
    Target { name: "text", seeds: text::seeds, grammar: text::grammar, words: TEXT_WORDS, run: text::run },
    Target {
        name: "trace",
        seeds: || vec![seeds::verified().trace.clone()],
        grammar: safetensors,
        words: MODEL_WORDS,
        run: trace::safetensors,
    },
    Target {
        name: "trace_npz",
        seeds: trace::npz_seeds,
        grammar: trace::npz_grammar,
        words: MODEL_WORDS,
        run: trace::npz,
    },
    Target { name: "trace_text", seeds: trace::text_seeds, grammar: lines, words: MODEL_WORDS, run: trace::text },
    Target {
        name: "repro",
        seeds: report::repro_seeds,
        grammar: report::repro_grammar,
        words: REPORT_WORDS,
        run: report::repro,
    },
    Target { name: "gate", seeds: report::gate_seeds, grammar: lines, words: REPORT_WORDS, run: report::gate },
    Target {
        name: "baseline",
        seeds: report::baseline_seeds,
        grammar: json,
        words: REPORT_WORDS,
        run: report::baseline,
    },
    Target {
        name: "attestation",
        seeds: attestation::seeds,
        grammar: json,
        words: ATTESTATION_WORDS,
        run: attestation::run,
    },
];
