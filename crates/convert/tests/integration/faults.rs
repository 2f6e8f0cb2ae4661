//! Checkpoints that do not fit: everything wrong is listed at once, and nothing is written.

use crate::draft::{Draft, Tensor, converted};
use safetensors::Dtype;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use trueup_blocks::DType;
use trueup_convert::{Agreement, FlmOptions, Options, TensorCheck, check, convert, to_flm};
use trueup_formats::{Checkpoint, Gguf, OpenOptions, open};
use trueup_quantize::{NoProgress, Recipe};

const Q: &str = "model.layers.1.self_attn.q_proj.weight";

#[test]
fn all_tensors_that_do_not_fit_are_listed_at_once() {
    let mut draft = Draft::of("llama2");
    draft.tensors.remove("model.norm.weight");
    draft.tensors.remove(Q);
    let (dtype, _, bytes) = draft.tensors["model.layers.0.mlp.up_proj.weight"].clone();
    draft.tensors.insert("model.layers.0.mlp.up_proj.weight".to_owned(), (dtype, vec![64, 96], bytes.clone()));
    draft.tensors.insert("model.layers.7.mlp.up_proj.weight".to_owned(), (dtype, vec![64, 96], bytes));
    draft.tensors.insert("model.layers.0.self_attn.q_proj.bias".to_owned(), (Dtype::BF16, vec![64], vec![0; 128]));
    draft.tensors.insert("position_ids".to_owned(), (Dtype::I64, vec![2], vec![0; 16]));
    draft.tensors.insert("model.layers.0.input_layernorm.weight".to_owned(), (Dtype::I32, vec![64], vec![0; 256]));
    let message = draft.refused(&Options::default());
    for part in [
        "tensor model.norm.weight is missing",
        "tensor model.layers.1.self_attn.q_proj.weight is missing",
        "tensor model.layers.0.mlp.up_proj.weight: expected shape [96, 64], found [64, 96]",
        "expected 2 layers (config.json), found 1 tensor of other layers, such as model.layers.7.mlp.up_proj.weight",
        "tensor model.layers.0.self_attn.q_proj.bias is not known",
        "tensor position_ids is not known",
        "tensor model.layers.0.input_layernorm.weight: expected a floating-point type, found i32",
    ] {
        assert!(message.contains(part), "{part:?} is missing in: {message}");
    }
}

const HEAD: &str = "lm_head.weight";
const EMBEDDING: &str = "model.embed_tokens.weight";
const FREQUENCIES: &str = "model.layers.0.self_attn.rotary_emb.inv_freq";

/// `1 / 10000^(2 i / 8)` of a head of 8 elements, as torch stores it.
fn frequencies(pairs: usize) -> Vec<u8> {
    (0..pairs).flat_map(|pair| (10_000_f64.powf(-(pair as f64) / pairs as f64) as f32).to_le_bytes()).collect()
}

fn has_head(draft: &Draft) -> bool {
    Gguf::open(draft.output()).unwrap().find("output.weight").is_some()
}

#[test]
fn a_tied_head_is_omitted_only_when_it_equals_the_embedding() {
    let mut draft = Draft::of("llama2");
    draft.config.insert("tie_word_embeddings".to_owned(), json!(true));
    // One element of the last row differs.
    let mut head = draft.tensors[EMBEDDING].clone();
    let place = head.2.len() - 3;
    head.2[place] ^= 1;
    draft.tensors.insert(HEAD.to_owned(), head.clone());
    let columns = head.1[1];
    let element = [place / 2 % columns, place / 2 / columns];
    let (notes, checks) = converted(&draft, Recipe::new(None));
    assert!(has_head(&draft));
    let kept = format!(
        "{HEAD} is kept as output.weight: its values differ from those of {EMBEDDING} (first in element {element:?})"
    );
    assert!(notes.contains(&kept), "{notes}");
    assert!(checks.iter().all(|line| line.agreement == Agreement::Exact && !line.omitted), "{checks:#?}");

    // Equal values, also in another type, are one tensor.
    draft.tensors.insert(HEAD.to_owned(), draft.tensors[EMBEDDING].clone());
    draft.set(HEAD, |_| ());
    let (notes, checks) = converted(&draft, Recipe::new(None));
    assert!(!has_head(&draft));
    assert!(
        notes.contains("lm_head.weight is omitted: it has the same values as model.embed_tokens.weight"),
        "{notes}"
    );
    let line = checks.last().unwrap();
    assert_eq!((line.name.as_str(), line.source.as_deref(), line.omitted), ("token_embd.weight", Some(HEAD), true));
    assert!(checks.iter().all(|line| line.agreement == Agreement::Exact), "{checks:#?}");

    // What stands for it in the file is compared with it.
    patch(&draft.output(), "token_embd.weight", |bytes| bytes[0] ^= 1);
    let source = draft.open();
    let checks = check(source.as_ref(), &Gguf::open(draft.output()).unwrap(), Some(2)).unwrap();
    let wrong: Vec<Option<&str>> =
        checks.iter().filter(|line| line.agreement != Agreement::Exact).map(|line| line.source.as_deref()).collect();
    assert_eq!(wrong, [Some(EMBEDDING), Some(HEAD)], "{checks:#?}");

    // Another shape is another tensor.
    let (dtype, shape, bytes) = head;
    draft.tensors.insert(HEAD.to_owned(), (dtype, vec![shape[0] / 2, shape[1]], bytes[..bytes.len() / 2].to_vec()));
    std::fs::remove_file(draft.output()).unwrap();
    assert!(draft.refused(&Options::default()).contains("tensor lm_head.weight: expected shape"));
}

#[test]
fn omitted_tables_are_compared_with_what_is_computed() {
    let mut draft = Draft::of("llama2");
    let size = draft.config["hidden_size"].as_u64().unwrap() / draft.config["num_attention_heads"].as_u64().unwrap();
    let pairs = size as usize / 2;
    draft.tensors.insert(FREQUENCIES.to_owned(), (Dtype::F32, vec![pairs], frequencies(pairs)));
    let (notes, checks) = converted(&draft, Recipe::new(None));
    assert!(notes.contains("1 tensor with the RoPE frequencies is omitted"), "{notes}");
    assert!(!notes.contains("differ from"), "{notes}");
    let line = checks.last().unwrap();
    assert_eq!((line.name.as_str(), line.source.as_deref()), ("(computed frequencies)", Some(FREQUENCIES)));
    assert!(line.omitted && !matches!(line.agreement, Agreement::Wrong { .. }), "{line:?}");

    let mut others = frequencies(pairs);
    others[..4].copy_from_slice(&0.5_f32.to_le_bytes());
    for (bytes, elements) in
        [(others, 1), (vec![0; 4 * pairs], pairs as u64), (frequencies(2 * pairs), 2 * pairs as u64)]
    {
        draft.tensors.insert(FREQUENCIES.to_owned(), (Dtype::F32, vec![bytes.len() / 4], bytes));
        let (notes, checks) = converted(&draft, Recipe::new(None));
        assert!(
            notes.contains(&format!("omitted tensors differ from those computed from config.json: {FREQUENCIES}")),
            "{notes}"
        );
        assert_eq!(checks.last().unwrap().agreement, Agreement::Wrong { elements });
    }
    draft.tensors.insert(FREQUENCIES.replace(".0.", ".x."), (Dtype::F32, vec![8], vec![0; 32]));
    std::fs::remove_file(draft.output()).unwrap();
    assert!(draft.refused(&Options::default()).contains("layers.x.self_attn.rotary_emb.inv_freq is not known"));
}

#[test]
fn an_untied_model_without_a_head_is_refused_with_a_remedy_that_works() {
    let mut draft = Draft::of("llama2");
    draft.tensors.remove(HEAD);
    let message = draft.refused(&Options::default());
    assert!(message.contains("tensor lm_head.weight is missing"), "{message}");
    assert!(message.contains("set tie_word_embeddings to true in config.json"), "{message}");
    draft.config.insert("tie_word_embeddings".to_owned(), json!(true));
    converted(&draft, Recipe::new(None));
    assert!(!has_head(&draft));
}

/// All tensors of a draft under other names.
fn renamed(draft: &mut Draft, rename: impl Fn(&str) -> String) {
    let tensors = std::mem::take(&mut draft.tensors);
    draft.tensors = tensors.into_iter().map(|(name, tensor)| (rename(&name), tensor)).collect();
}

#[test]
fn multimodal_checkpoints_are_named() {
    let mut draft = Draft::of("llama2");
    renamed(&mut draft, |name| format!("language_model.{name}"));
    draft.tensors.insert("vision_tower.patch.weight".to_owned(), (Dtype::BF16, vec![2], vec![0; 4]));
    let message = draft.refused(&Options::default());
    assert!(message.contains("a multimodal checkpoint") && message.contains("vision_tower.patch.weight"), "{message}");
}

/// Layouts of the hub: inside a wrapper, or without the prefix of the base model.
#[test]
fn prefixes_of_names_change_nothing_but_a_note() {
    type Rename = fn(&str) -> String;
    let cases: [(Rename, &str); 3] = [
        (|name| name.replace("model.", "model.language_model."), "`model.language_model.` instead of `model.`"),
        (|name| format!("_orig_mod.{}", name.replace("model.", "")), "`_orig_mod.` instead of `model.`"),
        (|name| name.replace("model.", ""), "lack the prefix `model.`"),
    ];
    let draft = Draft::of("llama2");
    converted(&draft, Recipe::new(None));
    let expected = std::fs::read(draft.output()).unwrap();
    let name_bytes = draft.folder.path().file_name().unwrap().len();
    for (rename, note) in cases {
        let mut draft = Draft::of("llama2");
        renamed(&mut draft, rename);
        let (notes, checks) = converted(&draft, Recipe::new(None));
        assert!(notes.contains(note), "{note}: {notes}");
        assert!(checks.iter().all(|check| check.agreement == Agreement::Exact));
        let written = std::fs::read(draft.output()).unwrap();
        // `general.name` is that of the temporary folder.
        let differences = written.iter().zip(&expected).filter(|(a, b)| a != b).count();
        assert!(written.len() == expected.len() && differences <= name_bytes, "{differences} bytes");
    }
}

#[test]
fn the_layout_of_other_programs_is_named() {
    let mut draft = Draft::of("llama2");
    renamed(&mut draft, |name| name.replace("model.layers.", "layers.").replace("self_attn.q_proj", "attention.wq"));
    let expected = "tensors: expected the tensor names of the Hugging Face layout, found those of Meta's and Mistral's own \
                    layout, such as layers.0.attention.wq.weight; get the files of the same model in the Hugging Face layout";
    let message = draft.refused(&Options::default());
    assert!(message.ends_with(expected), "{message}");
}

#[test]
fn a_wrapper_around_a_whole_model_is_read_through() {
    let mut draft = Draft::of("llama2");
    converted(&draft, Recipe::new(None));
    let expected = std::fs::read(draft.output()).unwrap();
    for prefix in ["module.", "_orig_mod.", "model.", "transformer.", "language_model.", "base_model.model."] {
        renamed(&mut draft, |name| format!("{prefix}{name}"));
        std::fs::remove_file(draft.output()).unwrap();
        let (notes, _) = converted(&draft, Recipe::new(None));
        let note = format!("tensor names have the additional prefix `{prefix}`, which is ignored");
        assert!(notes.contains(&note), "{notes}");
        assert!(std::fs::read(draft.output()).unwrap() == expected, "{prefix}");
        renamed(&mut draft, |name| name.strip_prefix(prefix).unwrap().to_owned());
    }
}

/// Errors name tensors as the file does, and as it would name those that it lacks.
#[test]
fn errors_name_tensors_with_the_prefix_of_the_wrapper() {
    let mut draft = Draft::of("llama2");
    renamed(&mut draft, |name| format!("base_model.model.{name}"));
    let (norm, up) = ("base_model.model.model.norm.weight", "base_model.model.model.layers.0.mlp.up_proj.weight");
    draft.tensors.remove(norm);
    draft.tensors.get_mut(up).unwrap().1.reverse();
    let message = draft.refused(&Options::default());
    assert!(message.contains(&format!("tensor {norm} is missing")), "{message}");
    assert!(message.contains(&format!("tensor {up}: expected shape")), "{message}");
    draft.tensors.remove("base_model.model.model.embed_tokens.weight");
    let message = draft.refused(&Options::default());
    assert!(message.contains("tensor base_model.model.model.embed_tokens.weight is missing"), "{message}");
    assert_eq!(message.matches("is missing").count(), 2, "{message}");
    let mut draft = Draft::of("llama2");
    renamed(&mut draft, |name| format!("module.{name}"));
    draft.tensors.remove(&format!("module.{HEAD}"));
    let message = draft.refused(&Options::default());
    assert!(
        message.contains(&format!("tensor module.{HEAD} is missing; if the model uses its embedding")),
        "{message}"
    );
}

#[test]
fn a_base_model_is_converted_if_its_head_is_tied() {
    let mut draft = Draft::of("llama2");
    renamed(&mut draft, |name| name.replace("model.", ""));
    draft.tensors.remove(HEAD);
    draft.config.insert("architectures".to_owned(), json!(["LlamaModel"]));
    let message = draft.refused(&Options::default());
    assert!(message.contains("the base model, without the output head"), "{message}");
    draft.config.insert("tie_word_embeddings".to_owned(), json!(true));
    let (notes, _) = converted(&draft, Recipe::new(None));
    assert!(notes.contains("this is the base model of LlamaForCausalLM"), "{notes}");
}

/// Masks as GPT-2 and GPT-NeoX stored them until 2023.
#[test]
fn stored_masks_are_compared_and_omitted() {
    let mut draft = Draft::of("gptneox");
    let (mask, score) = ("gpt_neox.layers.0.attention.bias", "gpt_neox.layers.0.attention.masked_bias");
    let triangle: Vec<u8> = (0..64).map(|place| u8::from(place % 8 <= place / 8)).collect();
    draft.tensors.insert(mask.to_owned(), (Dtype::U8, vec![1, 1, 8, 8], triangle.clone()));
    draft.tensors.insert(score.to_owned(), (Dtype::F32, vec![], (-1e9_f32).to_le_bytes().to_vec()));
    let (notes, checks) = converted(&draft, Recipe::new(None));
    let omitted =
        ["1 tensor with the causal mask is omitted", "1 tensor with the score of masked positions is omitted"];
    assert!(omitted.iter().all(|note| notes.contains(note)) && !notes.contains("differ from those"), "{notes}");
    assert!(checks.iter().all(|check| !matches!(check.agreement, Agreement::Wrong { .. })));
    draft.tensors.insert(mask.to_owned(), (Dtype::BOOL, vec![1, 1, 8, 8], vec![1; 64]));
    draft.tensors.insert(score.to_owned(), (Dtype::F32, vec![], 0.5_f32.to_le_bytes().to_vec()));
    let (notes, _) = converted(&draft, Recipe::new(None));
    assert!(notes.contains(&format!("differ from those computed from config.json: {mask}, {score}")), "{notes}");
    // A real bias of this name is not a mask.
    draft.tensors.insert(mask.to_owned(), (Dtype::F32, vec![2], vec![0; 8]));
    std::fs::remove_file(draft.output()).unwrap();
    let message = draft.refused(&Options::default());
    assert!(message.contains(&format!("tensor {mask} is not known")), "{message}");
}

/// Names as AutoAWQ and bitsandbytes write them, without a word of it in config.json.
#[test]
fn quantized_checkpoints_are_named_by_their_tensors() {
    let quantized = |ends: &[(&str, Dtype, usize)]| {
        let mut draft = Draft::of("llama2");
        let names: Vec<String> = draft.tensors.keys().filter(|name| name.ends_with("_proj.weight")).cloned().collect();
        for name in &names {
            draft.tensors.remove(name);
            for (end, dtype, bytes) in ends {
                let tensor = (*dtype, vec![4], vec![0; 4 * bytes]);
                draft.tensors.insert(name.replace("weight", end), tensor);
            }
        }
        (draft.refused(&Options::default()), names.len())
    };
    let (message, count) =
        quantized(&[("qweight", Dtype::I32, 4), ("qzeros", Dtype::I32, 4), ("scales", Dtype::F16, 2)]);
    let expected = format!(
        "tensors: expected unquantized weights, found weights quantized by AWQ (qweight, qzeros, scales in {count} \
         places), such as model.layers.0.mlp.down_proj.qweight; convert an unquantized (bf16, f16 or f32) \
         copy of the checkpoint, then quantize the result"
    );
    assert!(message.ends_with(&expected), "{message}");
    let (message, _) = quantized(&[("weight", Dtype::I8, 1), ("SCB", Dtype::F32, 4)]);
    assert!(message.contains("quantized by bitsandbytes (int8) (SCB in 14 places)"), "{message}");
}

#[test]
fn an_adapter_that_is_not_merged_is_named() {
    let mut draft = Draft::of("llama2");
    renamed(&mut draft, |name| name.replace("q_proj.weight", "q_proj.base_layer.weight"));
    let message = draft.refused(&Options::default());
    assert!(
        message.contains(
            "found an adapter that is not merged into it, such as model.layers.0.self_attn.q_proj.base_layer"
        ) && message.contains("merge_and_unload()"),
        "{message}"
    );
}

#[test]
fn weights_that_a_type_cannot_hold_are_named() {
    let f16 = Options { recipe: Recipe::new(Some(DType::F16)), ..Options::default() };
    for (value, recipe, part) in [
        (65_520.0, &f16, "is 65520, too large for f16"),
        (f32::NAN, &f16, "is NaN; the model is damaged"),
        (f32::NEG_INFINITY, &f16, "is -infinity; the model is damaged"),
        // A copy is looked at, too.
        (f32::NAN, &Options::default(), "is NaN; the model is damaged"),
    ] {
        // Also where rows are sorted: the element is the checkpoint's.
        for name in ["model.layers.1.mlp.down_proj.weight", Q] {
            let mut draft = Draft::of("llama2");
            draft.set(name, |values| values[100] = value);
            let message = draft.refused(recipe);
            let columns = *draft.tensors[name].1.last().unwrap();
            let element = [100 % columns, 100 / columns];
            assert!(message.contains(&format!("tensor {name}: element {element:?} {part}")), "{message}");
        }
    }
    let mut draft = Draft::of("llama2");
    draft.set("model.layers.1.mlp.down_proj.weight", |values| values[100] = 65_519.0);
    convert(draft.open().as_ref(), &draft.output(), &f16, &NoProgress).unwrap();
}

#[test]
fn rounding_is_reported_and_a_changed_file_is_found_out() {
    let mut draft = Draft::of("llama2");
    draft.set(Q, |values| values.iter_mut().enumerate().for_each(|(place, value)| *value += 1e-6 * place as f32));
    let source = draft.open();
    let options = Options { recipe: Recipe::new(Some(DType::Bf16)), ..Options::default() };
    convert(source.as_ref(), &draft.output(), &options, &NoProgress).unwrap();
    let agreement = |name: &str| {
        let checks = check(source.as_ref(), &Gguf::open(draft.output()).unwrap(), Some(2)).unwrap();
        checks.into_iter().find(|line| line.name == name).unwrap().agreement
    };
    match agreement("blk.1.attn_q.weight") {
        // bf16 keeps eight bits: half a unit in the last place of numbers below 1.
        Agreement::Rounded { max_abs, rmse, cosine } => {
            assert!(max_abs > 0.0 && max_abs <= 1.0 / 512.0 && rmse < max_abs && cosine > 0.9999);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(agreement("blk.1.attn_k.weight"), Agreement::Exact);

    let mut bytes = std::fs::read(draft.output()).unwrap();
    let place = bytes.len() - 64;
    bytes[place] ^= 1;
    std::fs::write(draft.output(), bytes).unwrap();
    assert_eq!(agreement("output.weight"), Agreement::Wrong { elements: 1 });
}

/// Changes the bytes of one tensor of a file.
fn patch(path: &Path, name: &str, change: impl FnOnce(&mut [u8])) {
    let written = Gguf::open(path).unwrap();
    let number = written.tensors().iter().position(|tensor| tensor.name == name).unwrap();
    let mut bytes = vec![0; written.tensors()[number].bytes as usize];
    written.read(number, 0, &mut bytes).unwrap();
    let mut file = std::fs::read(path).unwrap();
    let place = file.windows(bytes.len()).position(|window| window == bytes).unwrap();
    change(&mut file[place..place + bytes.len()]);
    std::fs::write(path, file).unwrap();
}

/// Blocks of q4_0 have 18 bytes, the first two the scale; a row of 64 elements has two blocks.
#[test]
fn a_lossy_file_is_wrong_when_its_bytes_are_not_what_the_source_becomes() {
    type Change = fn(&mut [u8]);
    let cases: [(&str, &str, u64, Change); 4] = [
        ("a scale", "blk.0.attn_k.weight", 32, |bytes| bytes[18] ^= 1),
        ("a code", "blk.0.ffn_down.weight", 32, |bytes| bytes[17] ^= 0x10),
        ("two rows of q", "blk.0.attn_q.weight", 128, |bytes| {
            let (first, second) = bytes[..72].split_at_mut(36);
            first.swap_with_slice(second);
        }),
        ("a norm", "blk.1.attn_norm.weight", 1, |bytes| bytes[0] ^= 1),
    ];
    let draft = Draft::of("llama2");
    let source = draft.open();
    let options = Options { recipe: Recipe::new(Some(DType::Q4_0)), ..Options::default() };
    for (what, name, elements, change) in cases {
        convert(source.as_ref(), &draft.output(), &options, &NoProgress).unwrap();
        patch(&draft.output(), name, change);
        let checks = check(source.as_ref(), &Gguf::open(draft.output()).unwrap(), Some(2)).unwrap();
        for line in checks {
            let is_wrong = matches!(line.agreement, Agreement::Wrong { .. });
            assert_eq!(is_wrong, line.name == name, "{what}: {line:?}");
            assert!(!is_wrong || line.agreement == Agreement::Wrong { elements }, "{what}: {line:?}");
        }
    }
}

#[test]
fn f64_is_rounded_and_told_and_what_f32_cannot_hold_is_refused() {
    let mut draft = Draft::of("llama2");
    let set = |draft: &mut Draft, value: f64| {
        let (dtype, shape, bytes) = draft.tensors.get_mut("model.norm.weight").unwrap();
        let mut values = vec![1.0; shape[0]];
        values[7] = value;
        *bytes = values.iter().flat_map(|value: &f64| value.to_le_bytes()).collect();
        *dtype = Dtype::F64;
    };
    set(&mut draft, 1e300);
    let message = draft.refused(&Options::default());
    assert!(message.contains("tensor model.norm.weight: element [7] is 1e300, too large for f32"), "{message}");
    assert!(!message.contains("damaged"), "{message}");
    for (value, is_exact) in [(0.5, true), (0.1, false)] {
        set(&mut draft, value);
        let source = draft.open();
        convert(source.as_ref(), &draft.output(), &Options::default(), &NoProgress).unwrap();
        let checks = check(source.as_ref(), &Gguf::open(draft.output()).unwrap(), Some(2)).unwrap();
        let found = checks.iter().find(|line| line.name == "output_norm.weight").unwrap().agreement;
        assert_eq!(found == Agreement::Exact, is_exact, "{value}: {found:?}");
        assert!(!matches!(found, Agreement::Wrong { .. }), "{value}: {found:?}");
    }
}

#[test]
fn weights_on_the_grid_of_their_type_are_checked_as_they_were_written() {
    let mut draft = Draft::of("llama2");
    let name = "model.layers.0.mlp.down_proj.weight";
    // Every 32 neighbors have all codes from -7 to 7: the rule of q4_0 would choose a scale for -8.
    draft.set(name, |values| {
        for (place, value) in values.iter_mut().enumerate() {
            *value = ((place * 7 % 15) as f32 - 7.0) * 0.25;
        }
    });
    let (notes, checks) = converted(&draft, Recipe::new(Some(DType::Q4_0)));
    assert!(notes.contains("stored without loss: blk.0.ffn_down.weight (q4_0)"), "{notes}");
    let found = checks.iter().find(|line| line.source.as_deref() == Some(name)).unwrap().agreement;
    assert_eq!(found, Agreement::Exact);
    assert!(checks.iter().all(|line| !matches!(line.agreement, Agreement::Wrong { .. })), "{checks:?}");
}

#[test]
fn a_number_of_threads_that_no_machine_has_is_refused() {
    let draft = Draft::of("llama2");
    let message = draft.refused(&Options { threads: Some(1_000_000), ..Options::default() });
    assert!(message.contains("expected 1 to 1024 threads, found 1000000"), "{message}");
    convert(draft.open().as_ref(), &draft.output(), &Options::default(), &NoProgress).unwrap();
    let written = Gguf::open(draft.output()).unwrap();
    assert!(check(draft.open().as_ref(), &written, Some(1_000_000)).unwrap_err().to_string().contains("1024 threads"));
}

#[test]
fn a_dry_run_tells_all_and_writes_nothing() {
    let draft = Draft::of("qwen2");
    let options = Options { dry_run: true, ..Options::default() };
    let source = draft.open();
    let planned = convert(source.as_ref(), &draft.output(), &options, &NoProgress).unwrap();
    assert!(!draft.output().exists());
    let done = convert(source.as_ref(), &draft.output(), &Options::default(), &NoProgress).unwrap();
    assert_eq!(planned, done);
    assert_eq!(std::fs::metadata(draft.output()).unwrap().len(), done.bytes);
}

#[test]
fn keys_can_be_set_but_the_file_must_stay_readable() {
    let draft = Draft::of("qwen3");
    let with = |texts: &[&str]| Options {
        overrides: texts.iter().map(|text| text.parse().unwrap()).collect(),
        ..Options::default()
    };
    for (text, part) in [
        ("qwen3.context_length=many", "qwen3.context_length: expected a value of type u32, found many"),
        ("qwen3.block_count=3", "tensor blk.2.attn_q.weight is missing"),
        ("general.architecture=qwen2", "qwen2."),
        ("tokenizer.ggml.tokens=x", "expected a value of type array"),
        ("general.alignment=64", "general.alignment: expected a key that describes the model"),
        ("split.count=3", "split.count: expected a key that describes the model"),
    ] {
        assert!(draft.refused(&with(&[text])).contains(part), "{text}: {}", draft.refused(&with(&[text])));
    }
    let options = with(&["general.name=My model", "qwen3.context_length=128", "general.version=1.5"]);
    convert(draft.open().as_ref(), &draft.output(), &options, &NoProgress).unwrap();
    let written = Gguf::open(draft.output()).unwrap();
    assert_eq!(written.metadata().string("general.name").unwrap(), "My model");
    assert_eq!(written.metadata().u64("qwen3.context_length").unwrap(), 128);
}

#[test]
fn a_gguf_file_is_not_converted_again() {
    let draft = Draft::of("qwen3");
    convert(draft.open().as_ref(), &draft.output(), &Options::default(), &NoProgress).unwrap();
    let written = Gguf::open(draft.output()).unwrap();
    let again = draft.folder.path().join("again.gguf");
    let message = convert(&written, &again, &Options::default(), &NoProgress).unwrap_err().to_string();
    assert!(message.contains("to convert, found GGUF v3") && message.contains("quantize"), "{message}");
}

/// Bytes of every tensor of the converted draft as f32, and the notes.
fn tensors_of(draft: &Draft) -> (Vec<(String, Vec<u8>)>, String) {
    let (notes, checks) = converted(draft, Recipe::new(Some(DType::F32)));
    assert!(checks.iter().all(|check| check.agreement == Agreement::Exact), "{checks:?}");
    let file = Gguf::open(draft.output()).unwrap();
    let read = |number: usize| {
        let mut bytes = vec![0; file.tensors()[number].bytes as usize];
        file.read(number, 0, &mut bytes).unwrap();
        (file.tensors()[number].name.clone(), bytes)
    };
    ((0..file.tensors().len()).map(read).collect(), notes)
}

fn quantization(class: &str, mode: &str) -> Value {
    json!({ "quant_method": "bitnet", "linear_class": class, "quantization_mode": mode })
}

/// The checkpoint of one class of BitNet under the names of the other one.
fn bitnet_of_microsoft() -> Draft {
    let mut draft = Draft::of("bitnet");
    renamed(&mut draft, |name| name.replace("inner_attn_ln", "attn_sub_norm").replace("ffn_layernorm", "ffn_sub_norm"));
    draft.config.insert("architectures".to_owned(), json!(["BitNetForCausalLM"]));
    draft
}

#[test]
fn the_description_decides_whether_matrices_become_ternary() {
    let (ternary, notes) = tensors_of(&Draft::of("bitnet"));
    assert!(notes.contains("rounds the input of each ternary matrix to 8 bits"), "{notes}");
    let mut draft = bitnet_of_microsoft();
    draft.config.insert("quantization_config".to_owned(), quantization("autobitlinear", "online"));
    let (online, notes) = tensors_of(&draft);
    assert!(online == ternary && notes.contains("8 bits"), "{notes}");
    draft.config.remove("quantization_config");
    let (plain, notes) = tensors_of(&draft);
    assert!(notes.contains("weights are used as they are") && !notes.contains("8 bits"), "{notes}");
    let distinct = |tensors: &[(String, Vec<u8>)]| {
        let (_, bytes) = tensors.iter().find(|(name, _)| name == "blk.1.ffn_up.weight").unwrap();
        bytes.as_chunks::<4>().0.iter().filter(|value| **value != [0, 0, 0, 128]).collect::<BTreeSet<_>>().len()
    };
    assert_eq!((distinct(&ternary), distinct(&plain) > 100), (3, true));
}

/// The example of transformers 4.57.6 (`unpack_weights`), in the first rows of a packed matrix.
#[test]
fn packed_values_are_those_of_transformers() {
    let mut draft = Draft::of("bitnet-2b");
    let (_, checks) = converted(&draft, Recipe::new(None));
    let check = checks.iter().find(|check| check.name == "blk.1.attn_q.weight").unwrap();
    assert_eq!((check.source_type, check.dtype), ("u8", "f32"));
    let packed = draft.tensors.get_mut(Q).unwrap();
    assert_eq!(packed.1, [16, 64]);
    for (place, byte) in [(0, 0b1010_0001), (1, 0b0001_1000), (64, 0b1001_0000), (65, 0b0000_1010)] {
        packed.2[place] = byte;
    }
    let scale = |draft: &mut Draft, value: f32| {
        for (_, tensor) in draft.tensors.iter_mut().filter(|(name, _)| name.ends_with("_scale")) {
            *tensor = (Dtype::F32, vec![1], value.to_le_bytes().to_vec());
        }
    };
    scale(&mut draft, 0.5);
    let (multiplied, _) = tensors_of(&draft);
    let (_, bytes) = multiplied.iter().find(|(name, _)| name == "blk.1.attn_q.weight").unwrap();
    let value = |row: usize, column: usize| {
        let place = 4 * (64 * row + column);
        2.0 * f32::from_le_bytes(bytes[place..place + 4].try_into().unwrap())
    };
    // Two rows of bytes are eight rows there, and rows of 16 bytes 64 rows here.
    let expected = [[0, -1], [-1, 1], [-1, 1], [-1, 1], [1, 0], [0, -1], [1, -1], [1, -1]];
    for (number, [first, second]) in expected.into_iter().enumerate() {
        let row = number / 2 * 16 + number % 2;
        assert_eq!([value(row, 0), value(row, 1)], [first as f32, second as f32], "row {row}");
    }
    // The other class divides by the scale.
    draft.config.insert("quantization_config".to_owned(), quantization("bitlinear", "offline"));
    scale(&mut draft, 2.0);
    assert!(tensors_of(&draft).0 == multiplied);
}

#[test]
fn ternary_checkpoints_that_lie_are_refused() {
    type Change = fn(&mut Draft);
    const SCALE: &str = "model.layers.1.self_attn.q_proj.weight_scale";
    const PACKED_FOUND: &str = "expected plain weights, as config.json says, found packed weights (weight_scale in 14 \
                                places); restore quantization_config from the original config.json";
    let cases: [(Change, &str); 10] = [
        (
            |draft| draft.tensors.get_mut(Q).unwrap().2[70] = 0xc0,
            "byte 70: expected 0, 1 or 2 in each pair of bits, found 0xc0",
        ),
        (|draft| draft.tensors.get_mut(SCALE).unwrap().2.fill(0), "q_proj.weight_scale: expected a scale other than 0"),
        (|draft| draft.set(SCALE, |values| values[0] = f32::NAN), "element [0] is NaN, expected a finite number"),
        (|draft| drop(draft.tensors.remove(Q)), "tensor model.layers.1.self_attn.q_proj.weight is missing"),
        (
            |draft| *draft.tensors.get_mut(SCALE).unwrap() = (Dtype::BF16, vec![2], vec![0; 4]),
            "weight_scale: expected shape [1], found [2]",
        ),
        (|draft| draft.tensors.get_mut(Q).unwrap().1 = vec![64, 16], "expected shape [16, 64], found [64, 16]"),
        (
            |draft| *draft.tensors.get_mut(Q).unwrap() = (Dtype::BF16, vec![64, 64], vec![0; 8192]),
            "expected shape [16, 64], found [64, 64]; tensor model.layers.1.self_attn.q_proj.weight: expected packed \
             values of type u8, found bf16",
        ),
        (
            |draft| drop(draft.config.insert("architectures".to_owned(), json!(["LlamaForCausalLM"]))),
            "expected an unquantized checkpoint, found quant_method \"bitnet\"",
        ),
        (|draft| drop(draft.config.remove("quantization_config")), PACKED_FOUND),
        (
            |draft| {
                drop(draft.config.insert("quantization_config".to_owned(), quantization("autobitlinear", "online")))
            },
            PACKED_FOUND,
        ),
    ];
    for (change, expected) in cases {
        let mut draft = Draft::of("bitnet-2b");
        change(&mut draft);
        let message = draft.refused(&Options::default());
        assert!(message.contains(expected), "{expected:?}: {message}");
    }
    let mut draft = Draft::of("bitnet-2b");
    draft.tensors.remove(SCALE);
    draft.write();
    let message = open(draft.folder.path(), &OpenOptions::default()).map(drop).unwrap_err().to_string();
    assert!(message.contains(&format!("found {Q} (U8 without {SCALE})")), "{message}");
    let mut draft = Draft::of("bitnet");
    draft.set(Q, |values| values[100] = f32::INFINITY);
    let columns = *draft.tensors[Q].1.last().unwrap();
    let element = [100 % columns, 100 / columns];
    let message = draft.refused(&Options::default());
    assert!(
        message.contains(&format!("tensor {Q}: element {element:?} is infinity, expected a finite number")),
        "{message}"
    );
    let mut draft = Draft::of("bitnet");
    draft.set(Q, |values| values.fill(f32::MAX));
    let message = draft.refused(&Options::default());
    assert!(message.contains(&format!("tensor {Q}: the mean magnitude of its elements is 3.4")), "{message}");
}

/// llama.cpp does not load files of these architectures without an output head.
#[test]
fn the_embedding_is_written_as_the_head_where_llama_cpp_needs_one() {
    for name in [
        "baichuan",
        "codeshell",
        "gptneox",
        "internlm2",
        "olmo2",
        "olmoe",
        "orion",
        "phi2",
        "plamo",
        "qwen2moe",
        "stablelm",
        "xverse",
    ] {
        let mut draft = Draft::of(name);
        draft.config.insert("tie_word_embeddings".to_owned(), json!(true));
        let removed = [HEAD, "output.weight", "embed_out.weight"].map(|head| draft.tensors.remove(head).is_some());
        assert!(removed.contains(&true) || name == "codeshell", "{name}");
        let (notes, checks) = converted(&draft, Recipe::new(None));
        assert!(notes.contains("the embedding is written a second time, as output.weight"), "{name}: {notes}");
        assert!(checks.iter().all(|line| line.agreement == Agreement::Exact), "{name}");
        let file = Gguf::open(draft.output()).unwrap();
        let bytes = |tensor: &str| {
            let number = file.find(tensor).unwrap_or_else(|| panic!("{name} has no {tensor}"));
            let mut bytes = vec![0; file.tensors()[number].bytes as usize];
            file.read(number, 0, &mut bytes).unwrap();
            (file.tensors()[number].dtype, bytes)
        };
        assert!(bytes("output.weight") == bytes("token_embd.weight"), "{name}");
    }
}

/// FastLLM's exporter writes a head for every model, too.
#[test]
fn a_head_that_is_the_embedding_is_written_to_flm_files() {
    let mut draft = Draft::of("baichuan");
    draft.config.insert("tie_word_embeddings".to_owned(), json!(true));
    assert!(draft.tensors.remove(HEAD).is_some());
    let path = draft.folder.path().join("out.flm");
    to_flm(draft.open().as_ref(), &path, &FlmOptions::default(), &NoProgress).unwrap();
    let file = open(&path, &OpenOptions::default()).unwrap();
    let bytes = |name: &str| {
        let number = file.find(name).unwrap_or_else(|| panic!("no {name}"));
        let mut bytes = vec![0; file.tensors()[number].bytes as usize];
        file.read(number, 0, &mut bytes).unwrap();
        bytes
    };
    // The head is written in f32, the embedding in bf16: the two high bytes of an f32.
    let widened: Vec<u8> = bytes(EMBEDDING).chunks_exact(2).flat_map(|pair| [0, 0, pair[0], pair[1]]).collect();
    assert!(bytes(HEAD) == widened);
}

/// The class of Baichuan 2 normalizes the rows of its head, although they are those of the embedding.
#[test]
fn rows_of_a_head_that_is_the_embedding_are_normalized() {
    let mut draft = Draft::of("baichuan");
    draft.config.insert("tie_word_embeddings".to_owned(), json!(true));
    draft.config.insert("z_loss_weight".to_owned(), json!(0));
    assert!(draft.tensors.remove(HEAD).is_some());
    let (_, checks) = converted(&draft, Recipe::new(Some(DType::F32)));
    assert!(checks.iter().all(|line| line.agreement == Agreement::Exact));
    let file = Gguf::open(draft.output()).unwrap();
    let number = file.find("output.weight").unwrap();
    let mut bytes = vec![0; file.tensors()[number].bytes as usize];
    file.read(number, 0, &mut bytes).unwrap();
    let values: Vec<f32> = bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect();
    for row in values.chunks(file.tensors()[number].shape[0] as usize) {
        let length = row.iter().map(|value| value * value).sum::<f32>().sqrt();
        assert!((length - 1.0).abs() < 1e-4, "{length}");
    }
}

/// T5's description, head and copies of the embedding. The factor `d_model^-0.5` is 0.125.
#[test]
fn the_head_of_t5_is_the_matrix_that_the_class_uses_times_its_factor() {
    let (head, shared, scale) = (HEAD.to_owned(), "shared.weight", "scale_decoder_outputs");
    let draft = |is_tied: bool, is_scaled: Option<bool>| {
        let mut draft = Draft::of("../encoder-decoders/t5");
        draft.config.insert("tie_word_embeddings".to_owned(), json!(is_tied));
        draft.config.extend(is_scaled.map(|is_scaled| (scale.to_owned(), json!(is_scaled))));
        draft
    };
    let other = |draft: &Draft| {
        let (dtype, shape, bytes) = draft.tensors[shared].clone();
        (dtype, shape, bytes.chunks_exact(2).rev().flatten().copied().collect::<Vec<u8>>())
    };
    // The values of a bf16 matrix, times the factor, in f32.
    let product = |(_, _, bytes): &Tensor, factor: f32| -> Vec<u8> {
        let value = |pair: &[u8]| f32::from_bits(u32::from(u16::from_le_bytes([pair[0], pair[1]])) << 16) * factor;
        bytes.chunks_exact(2).flat_map(|pair| value(pair).to_le_bytes()).collect()
    };
    let output = |draft: &Draft| {
        let file = Gguf::open(draft.output()).unwrap();
        let number = file.find("output.weight").expect("the file has a head");
        let mut bytes = vec![0; file.tensors()[number].bytes as usize];
        file.read(number, 0, &mut bytes).unwrap();
        bytes
    };
    let exact = |checks: &[TensorCheck]| checks.iter().all(|line| line.agreement == Agreement::Exact);
    let recipe = || Recipe::new(Some(DType::F32));

    let tied = draft(true, Some(false));
    let (notes, checks) = converted(&tied, recipe());
    assert!(!has_head(&tied) && exact(&checks), "{notes}");

    let scaled = draft(true, None);
    let (_, checks) = converted(&scaled, recipe());
    assert!(output(&scaled) == product(&scaled.tensors[shared], 0.125) && exact(&checks));

    for (is_tied, is_scaled, factor) in
        [(false, Some(true), 0.125), (false, None, 1.0), (true, None, 0.125), (true, Some(false), 1.0)]
    {
        let mut draft = draft(is_tied, is_scaled);
        draft.tensors.insert(head.clone(), other(&draft));
        let (notes, checks) = converted(&draft, recipe());
        assert!(output(&draft) == product(&draft.tensors[&head], factor), "{is_tied} {is_scaled:?}: {notes}");
        assert!(exact(&checks) && notes.contains("lm_head.weight is kept as output.weight") == is_tied, "{notes}");
    }

    let mut copied = draft(true, None);
    for name in [HEAD, "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"] {
        copied.tensors.insert(name.to_owned(), copied.tensors[shared].clone());
    }
    let (notes, checks) = converted(&copied, recipe());
    assert!(notes.contains("lm_head.weight is omitted: it has the same values as shared.weight"), "{notes}");
    let equal = "2 tensors with the same values as shared.weight are omitted: decoder.embed_tokens.weight, \
                 encoder.embed_tokens.weight";
    assert!(notes.contains(equal) && exact(&checks), "{notes}");
    assert_eq!(checks.iter().filter(|line| line.omitted).count(), 3);

    copied.tensors.insert("encoder.embed_tokens.weight".to_owned(), other(&copied));
    let (notes, checks) = converted(&copied, recipe());
    let different = "encoder.embed_tokens.weight (its values differ from those of the embedding, which the class uses \
                     instead)";
    assert!(notes.contains(different) && exact(&checks), "{notes}");
    assert!(notes.contains("1 tensor with the same values as shared.weight is omitted: decoder.embed_tokens.weight"));
}
