//! The table of supported models: each row has models with reference results, and a chat template and a tokenizer or
//! the reason for lacking one.

use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use trueup::models::Architecture;
use trueup_tests::{published, root};

/// One row of the table.
struct Row {
    /// The name of the models.
    name: &'static str,
    /// Folders of `fixtures`, and names in `fixtures/published.json` after `published/`.
    models: &'static [&'static str],
    /// Names in `fixtures/family-templates.json`.
    templates: Cases,
    /// Names in `fixtures/family-tokenizers.json`.
    tokenizers: Cases,
}

/// Names in a golden file, or the reason why there are none.
enum Cases {
    Of(&'static [&'static str]),
    None(&'static str),
}
use Cases::{None, Of};

const BASE: Cases = None("only base models are published");
const PROGRAM: Cases = None("the program of the model builds the text; there is no template");
const CARD: Cases = None("the model card describes the text; there is no template");
const NOT_FOUND: Cases = None("the template is in none of the collections that the golden file was made from");
const TOO_LONG: Cases = None("the published template is compared by make_template_fixtures.py --compare only");
const PLAIN: Cases = None("the model takes plain text, not conversations");
const PIECES: Cases = None("no byte-level BPE: the tokenizer of the fixture has the same kind");
const RANKS: Cases = None("the tokenizer consists of ranks, as in the fixture");

const fn row(name: &'static str, models: &'static [&'static str], templates: Cases, tokenizers: Cases) -> Row {
    Row { name, models, templates, tokenizers }
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("AquilaChat2", &["published/AquilaChat2", "published/AquilaChat2-34B"], PROGRAM, Of(&["gpt2"])),
    row("Baichuan 1", &["models/baichuan", "published/Baichuan-13B"], PROGRAM, PIECES),
    row("Baichuan 2", &["models/baichuan2-13b", "published/Baichuan2-7B"], PROGRAM, PIECES),
    row("BERT", &["encoders/bert", "encoders/bert-cased"], PLAIN, PIECES),
    row("BitNet b1.58", &["models/bitnet", "models/bitnet-2b"], NOT_FOUND, Of(&["llama3"])),
    row("BLOOM", &["models/bloom"], BASE, Of(&["bloom"])),
    row("BLOOMZ", &["published/bloomz"], PLAIN, Of(&["bloom"])),
    row("ChatGLM-6B", &["models/chatglm1"], PROGRAM, PIECES),
    row("ChatGLM2", &["models/chatglm2"], PROGRAM, PIECES),
    row("ChatGLM3", &["models/chatglm3"], Of(&["chatglm3"]), PIECES),
    row("Chinese Llama variants", &["published/Chinese-LLaMA", "published/Chinese-LLaMA-2",
        "published/Llama-3-Chinese"], Of(&["llama2", "llama3"]), Of(&["llama3"])),
    row("CodeShell", &["models/codeshell"], PROGRAM, Of(&["codeshell"])),
    row("Command R", &["models/command-r"], Of(&["command-r"]), Of(&["command-r"])),
    row("Command R7B", &["models/cohere2"], TOO_LONG, Of(&["command-r"])),
    row("deepseek-coder", &["published/deepseek-coder"], Of(&["deepseek-coder"]), Of(&["deepseek-coder"])),
    row("DeepSeek-V2", &["models/deepseek2", "published/DeepSeek-V2"], Of(&["deepseek-v2"]), Of(&["deepseek-llm"])),
    row("DeepSeek-V2-Lite", &["published/DeepSeek-V2-Lite"], Of(&["deepseek-v2"]), Of(&["deepseek-llm"])),
    row("DeepSeek-V3", &["models/deepseek3", "published/DeepSeek-V3"], Of(&["deepseek-v3"]), Of(&["deepseek-v3"])),
    row("Falcon 7B", &["models/falcon-7b"], Of(&["falcon"]), Of(&["falcon"])),
    row("Falcon 40B", &["models/falcon-40b"], Of(&["falcon"]), Of(&["falcon"])),
    row("Falcon RW", &["models/falcon-rw", "published/Falcon-RW"], Of(&["falcon-rw"]), Of(&["gpt2"])),
    row("flan-T5", &["encoder-decoders/flan-t5"], PLAIN, PIECES),
    row("Gemma", &["models/gemma"], Of(&["gemma"]), PIECES),
    row("Gemma 2", &["models/gemma2"], Of(&["gemma2"]), PIECES),
    row("Gemma 3", &["models/gemma3"], Of(&["gemma3"]), PIECES),
    row("GLM-4", &["models/glm4", "models/glm"], Of(&["glm4"]), Of(&["glm4"])),
    row("GLM-4-0414", &["models/glm4-0414"], NOT_FOUND, Of(&["glm4"])),
    row("GPT-2", &["models/gpt2"], BASE, Of(&["gpt2"])),
    row("Granite", &["models/granite"], Of(&["granite"]), Of(&["granite"])),
    row("GraniteMoE", &["models/granitemoe", "published/GraniteMoe"], Of(&["granite-moe"]), Of(&["granite"])),
    row("GritLM", &["published/GritLM"], NOT_FOUND, PIECES),
    row("InternLM", &["models/internlm"], PROGRAM, PIECES),
    row("InternLM2", &["models/internlm2"], Of(&["internlm2"]), PIECES),
    row("InternLM3", &["published/InternLM3"], NOT_FOUND, PIECES),
    row("koala", &["published/koala"], CARD, PIECES),
    row("Llama 1 and 2", &["models/llama2", "models/llama-linear"], Of(&["llama2"]), PIECES),
    row("Llama 3", &["models/llama3", "models/llama3-tied", "models/llama-yarn"], Of(&["llama3", "llama3.1"]),
        Of(&["llama3"])),
    row("Mamba", &["models/mamba"], BASE, Of(&["gptneox"])),
    row("Mamba-2", &["models/mamba2"], BASE, Of(&["gptneox"])),
    row("MiniCPM", &["models/minicpm"], Of(&["minicpm"]), PIECES),
    row("Mistral", &["models/mistral"], Of(&["mistral"]), Of(&["mistral-nemo"])),
    row("Mixtral", &["models/mixtral"], Of(&["mixtral"]), PIECES),
    row("MOSS", &["models/moss"], PROGRAM, Of(&["gpt2"])),
    row("MPT", &["models/mpt", "published/MPT"], NOT_FOUND, Of(&["gptneox"])),
    row("OLMo", &["models/olmo"], Of(&["olmo"]), Of(&["gptneox"])),
    row("OLMo 2", &["models/olmo2"], Of(&["olmo2"]), Of(&["olmo2"])),
    row("OLMoE", &["models/olmoe"], Of(&["olmo2"]), Of(&["gptneox"])),
    row("OpenELM", &["models/openelm"], PLAIN, PIECES),
    row("Orion", &["models/orion"], Of(&["orion"]), PIECES),
    row("Phi-1", &["published/phi-1"], BASE, Of(&["phi2"])),
    row("Phi-2", &["models/phi2"], BASE, Of(&["phi2"])),
    row("Phi-3", &["models/phi4-long", "published/Phi-3-mini"], Of(&["phi3"]), PIECES),
    row("Phi-4", &["models/phi4"], Of(&["phi4"]), Of(&["olmo2", "phi4-mini"])),
    row("PLaMo", &["models/plamo"], BASE, PIECES),
    row("Pythia", &["models/gptneox", "published/pythia"], BASE, Of(&["gptneox"])),
    row("Qwen", &["models/qwen"], PROGRAM, RANKS),
    row("Qwen1.5", &["published/Qwen1.5"], Of(&["qwen1.5"]), Of(&["qwen2"])),
    row("Qwen2", &["models/qwen2"], Of(&["qwen2"]), Of(&["qwen2"])),
    row("Qwen2.5", &["published/Qwen2.5"], Of(&["qwen2.5"]), Of(&["qwen2"])),
    row("Qwen2-MoE", &["models/qwen2moe"], Of(&["qwen1.5", "qwen2"]), Of(&["qwen2"])),
    row("Qwen3", &["models/qwen3"], Of(&["qwen3"]), Of(&["qwen2"])),
    row("Qwen3-MoE", &["models/qwen3moe"], Of(&["qwen3"]), Of(&["qwen2"])),
    row("Refact", &["models/refact", "published/Refact"], CARD, Of(&["granite"])),
    row("SmolLM", &["published/SmolLM", "published/SmolLM2"], Of(&["smollm2"]), Of(&["smollm"])),
    row("StableLM 1 and 2", &["models/stablelm", "models/stablelm2-12b", "published/StableLM-3B"], Of(&["stablelm"]),
        Of(&["gptneox", "stablelm2"])),
    row("StarCoder", &["models/starcoder"], BASE, Of(&["starcoder"])),
    row("StarCoder2", &["models/starcoder2"], Of(&["starcoder2"]), Of(&["starcoder"])),
    row("T5", &["encoder-decoders/t5", "encoder-decoders/umt5"], PLAIN, PIECES),
    row("vigogne", &["published/vigogne"], Of(&["vigogne"]), PIECES),
    row("XVERSE", &["models/xverse"], PROGRAM, PIECES),
    row("Yi", &["published/Yi", "published/Yi, first version"], Of(&["yi"]), PIECES),
];

/// The names of the families in a golden file.
fn families(file: &str) -> BTreeSet<String> {
    let golden = fs::read(root().join("fixtures").join(file)).expect("the golden file");
    let golden: Value = serde_json::from_slice(&golden).expect("JSON");
    let families = golden["families"].as_array().expect("families");
    families.iter().map(|family| family["name"].as_str().expect("a name").to_owned()).collect()
}

/// Names, each once, sorted.
fn sorted<'a>(names: impl IntoIterator<Item = &'a &'static str>) -> BTreeSet<String> {
    names.into_iter().map(|name| (*name).to_owned()).collect()
}

/// Every name of a golden file is used, every name that is used exists, and a row without a name has a reason.
fn assert_used(file: &str, cases: impl Fn(&Row) -> &Cases) {
    let mut used = Vec::new();
    for row in ROWS {
        match cases(row) {
            Of(names) if !names.is_empty() => used.extend(*names),
            Of(_) => panic!("{}: neither a case of {file} nor a reason", row.name),
            None(reason) => assert!(!reason.is_empty(), "{}: no reason", row.name),
        }
    }
    assert_eq!(families(file), sorted(used), "{file}");
}

#[test]
fn every_row_has_a_chat_template_or_a_reason() {
    assert_used("family-templates.json", |row| &row.templates);
}

#[test]
fn every_row_has_a_tokenizer_or_a_reason() {
    assert_used("family-tokenizers.json", |row| &row.tokenizers);
}

/// The models that the golden files and the folders of fixtures hold, as the table names them.
fn models() -> BTreeSet<String> {
    let mut models: BTreeSet<String> =
        published().into_iter().map(|model| format!("published/{}", model.name)).collect();
    for kind in ["models", "encoders", "encoder-decoders"] {
        for entry in fs::read_dir(root().join("fixtures").join(kind)).expect("fixtures are in the repository") {
            let name = entry.expect("entries can be read").file_name();
            models.insert(format!("{kind}/{}", name.to_string_lossy()));
        }
    }
    models
}

#[test]
fn every_row_has_a_model() {
    let models = models();
    for row in ROWS {
        let missing = row.models.iter().find(|model| !models.contains(**model));
        assert!(!row.models.is_empty() && missing.is_none(), "{} lacks a model: {missing:?}", row.name);
    }
    assert_eq!(sorted(ROWS.iter().map(|row| &row.name)).len(), ROWS.len(), "names are unique");
}

#[test]
fn every_architecture_has_a_model() {
    let described = published().into_iter().map(|model| model.config);
    let stored = models().into_iter().filter(|model| !model.starts_with("published/"));
    let read = |model: String| {
        let path = root().join("fixtures").join(model).join("config.json");
        trueup::formats::json::object(&path, &fs::read(&path).expect("a description")).expect("JSON")
    };
    let all: Vec<Map<String, Value>> = described.chain(stored.map(read)).collect();
    let used: Vec<&Architecture> = all
        .iter()
        .map(|config| Architecture::of_config(config, Path::new("model")).expect("an architecture"))
        .collect();
    let offered = trueup::models::ARCHITECTURES.iter().filter(|architecture| !architecture.is_internal);
    let missing: Vec<_> = offered.filter(|one| !used.contains(one)).map(|one| one.classes).collect();
    // mT5 differs from T5 and UMT5 in its class alone: `layouts.rs` of the converter tests that.
    assert_eq!(missing, [["MT5ForConditionalGeneration"]], "architectures without a model");
}
