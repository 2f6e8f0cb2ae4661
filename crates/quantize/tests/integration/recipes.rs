//! The types that recipes choose, compared with those of llama-quantize for made models.

use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use trueup_blocks::DType;
use trueup_formats::TensorInfo;
use trueup_quantize::{ModelFacts, Recipe, Rule, Scheme};

/// Types by tensor name.
type Types = BTreeMap<String, DType>;

fn goldens() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recipes/recipes.json");
    serde_json::from_slice(&fs::read(path).expect("goldens are in the repository")).expect("goldens are JSON")
}

/// A made model: facts and tensors. `scripts/make_recipe_goldens.py` writes the same ones.
struct Model {
    facts: ModelFacts,
    tensors: Vec<TensorInfo>,
}

impl Model {
    fn new(entry: &Value) -> Model {
        let number = |key: &str| entry[key].as_u64().expect("a number");
        let arch = entry["arch"].as_str().expect("an architecture").to_owned();
        let (layers, heads, kv_heads) = (number("layers"), number("heads"), number("kv_heads"));
        let (width, ffn, experts, shared) = (number("width"), number("ffn"), number("experts"), number("shared"));
        let kv = width / heads * kv_heads;
        let is_fused = ["falcon", "phi3"].contains(&arch.as_str());
        let mut layer: Vec<(&str, Vec<u64>)> = vec![("attn_norm", vec![width]), ("attn_output", vec![width, width])];
        if is_fused {
            layer.push(("attn_qkv", vec![width, width + 2 * kv]));
        } else {
            layer.extend([("attn_q", vec![width, width]), ("attn_k", vec![width, kv]), ("attn_v", vec![width, kv])]);
        }
        if experts > 0 {
            layer.push(("ffn_gate_inp", vec![width, experts]));
            layer.extend(["ffn_gate_exps", "ffn_up_exps"].map(|name| (name, vec![width, ffn, experts])));
            layer.push(("ffn_down_exps", vec![ffn, width, experts]));
        } else {
            let up = if arch == "phi3" { 2 * ffn } else { ffn };
            layer.extend([("ffn_up", vec![width, up]), ("ffn_down", vec![ffn, width])]);
            layer.extend((!is_fused).then(|| ("ffn_gate", vec![width, ffn])));
        }
        if shared > 0 {
            layer.extend(["ffn_gate_shexp", "ffn_up_shexp"].map(|name| (name, vec![width, shared])));
            layer.extend([("ffn_gate_inp_shexp", vec![width]), ("ffn_down_shexp", vec![shared, width])]);
        }
        let mut named = vec![("token_embd.weight".to_owned(), vec![width, 64])];
        named.push(("output_norm.weight".to_owned(), vec![width]));
        named.extend((entry["tied"] == false).then(|| ("output.weight".to_owned(), vec![width, 64])));
        // The last layer first: places in the file do not matter.
        for number in (0..layers).rev() {
            named.extend(layer.iter().map(|(name, shape)| (format!("blk.{number}.{name}.weight"), shape.clone())));
        }
        let tensors = named.into_iter().map(|(name, shape)| {
            let dtype = if shape.len() > 1 { DType::F16 } else { DType::F32 };
            TensorInfo::new(name, &shape, dtype).expect("a small tensor")
        });
        let facts = ModelFacts { architecture: arch, layers, heads, kv_heads, experts, has_importance: false };
        Model { facts, tensors: tensors.collect() }
    }

    fn choose(&self, recipe: &Recipe, has_importance: bool) -> Result<Types, String> {
        let facts = ModelFacts { has_importance, ..self.facts.clone() };
        let choices = recipe.choose(&self.tensors, &facts).map_err(|error| error.0)?;
        let mut types = Types::new();
        for (tensor, choice) in self.tensors.iter().zip(choices) {
            let is_requested = recipe.scheme().is_some_and(|scheme| scheme.base() == choice.dtype);
            let has_reason = !choice.note.is_empty() || is_requested || recipe.selection_flag().is_some();
            assert!(has_reason, "{}: {} without a reason", tensor.name, choice.dtype);
            types.insert(tensor.name.clone(), choice.dtype);
        }
        Ok(types)
    }

    /// The types in a golden: `Q4_K output=Q6_K attn_v=Q6_K@0,3,6-7`.
    fn expand(&self, golden: &str) -> Types {
        let mut words = golden.split(' ');
        let dtype = |name: &str| DType::from_name(name).unwrap_or_else(|| panic!("unknown type {name}"));
        let most = dtype(words.next().expect("the most frequent type"));
        let mut types: Types = self.tensors.iter().map(|tensor| (tensor.name.clone(), most)).collect();
        for word in words {
            let (kind, rest) = word.split_once('=').expect("NAME=TYPE");
            let (name, layers) = rest.split_once('@').map_or((rest, None), |(name, layers)| (name, Some(layers)));
            let has = |layer: u64| layers.is_none_or(|layers| layers.split(',').any(|range| is_in(range, layer)));
            for (tensor, found) in &mut types {
                let stem = tensor.trim_end_matches(".weight");
                let layer = stem.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
                let is_named = match layer {
                    Some((number, name)) => name == kind && has(number.parse().expect("a layer")),
                    None => stem == kind,
                };
                *found = if is_named { dtype(name) } else { *found };
            }
        }
        types
    }

    /// Compares the types of all matrices, except those for which `is_exempt` gives a reason.
    fn compare(&self, run: &str, found: &Types, expected: &Types, is_exempt: impl Fn(&str) -> bool) -> Vec<String> {
        let is_compared = |tensor: &&TensorInfo| !tensor.name.ends_with("_norm.weight") && !is_exempt(&tensor.name);
        let differences = self.tensors.iter().filter(is_compared).filter_map(|tensor| {
            let (found, expected) = (found[&tensor.name], expected[&tensor.name]);
            (found != expected).then(|| format!("{run}: {}: expected {expected}, found {found}", tensor.name))
        });
        differences.collect()
    }
}

/// Whether `3` or `2-6` contains a layer.
fn is_in(range: &str, layer: u64) -> bool {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let number = |text: &str| text.parse::<u64>().expect("a layer");
    (number(first)..=number(last)).contains(&layer)
}

/// We keep the ends of these files in q8_0 or in the type itself, where the reference uses q6_k.
fn has_other_ends(recipe: &str, name: &str) -> bool {
    let is_end = ["output.weight", "token_embd.weight"].contains(&name);
    is_end && ["Q4_0", "Q4_1", "Q5_0", "Q5_1"].contains(&recipe)
}

#[test]
fn every_recipe_chooses_the_types_of_the_reference() {
    let goldens = goldens();
    let models = goldens["models"].as_object().expect("models by name");
    let (mut differences, mut runs) = (Vec::new(), 0);
    for (name, entry) in models {
        let model = Model::new(entry);
        let of = |key: &str| entry[key].as_object().expect("runs by recipe").clone();
        let (plain, with_importance): (Map<String, Value>, Map<String, Value>) = (of("runs"), of("with_importance"));
        for (recipe, golden) in &plain {
            for has_importance in [false, true] {
                let golden = with_importance.get(recipe).filter(|_| has_importance).unwrap_or(golden);
                let golden = golden.as_str().expect("a result");
                let run = format!("{name} {recipe} {has_importance}");
                let scheme = Scheme::from_name(recipe).unwrap_or_else(|| panic!("{recipe} is no scheme"));
                let found = model.choose(&Recipe::of(Some(scheme)), has_importance);
                runs += 1;
                match found {
                    Err(sentence) if golden.starts_with("refused") => {
                        assert!(sentence.starts_with("q2_k_s needs an importance matrix"), "{run}: {sentence}");
                    }
                    Err(sentence) => differences.push(format!("{run}: {sentence}")),
                    Ok(_) if golden.starts_with("refused") => differences.push(format!("{run}: not refused")),
                    Ok(found) => {
                        let is_exempt = |tensor: &str| has_other_ends(recipe, tensor);
                        differences.extend(model.compare(&run, &found, &model.expand(golden), is_exempt));
                    }
                }
            }
        }
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
    assert_eq!((models.len(), runs), (21, 21 * 20 * 2));
}

/// The recipe of a run with options, in our options.
fn with_options(scheme: &str, arguments: &str) -> Recipe {
    let mut recipe = Recipe::of(Scheme::from_name(scheme));
    let mut rules = Vec::new();
    let mut words = arguments.split_whitespace();
    while let Some(option) = words.next() {
        let mut value = || words.next().expect("a value");
        let dtype = |name: &str| DType::from_name(name).unwrap_or_else(|| panic!("unknown type {name}"));
        match option {
            "--pure" => recipe = recipe.pure(true),
            "--leave-output-tensor" => recipe = recipe.leave_output(true),
            "--output-tensor-type" => recipe = recipe.output(Some(dtype(value()))),
            "--token-embedding-type" => recipe = recipe.token_embedding(Some(dtype(value()))),
            "--tensor-type" => {
                let (pattern, name) = value().split_once('=').expect("PATTERN=TYPE");
                rules.push(Rule::new(pattern, dtype(name)).expect("a pattern"));
            }
            other => panic!("unknown option {other}"),
        }
    }
    recipe.rules(rules)
}

/// What a run with options is expected to choose.
enum Expected<'a> {
    /// The types of the reference.
    Same,
    /// The types of the recipe without options, except for the tensors of this name.
    Rule(&'a str, DType),
    Error(&'a str),
}

/// The deliberate differences from the reference; other runs agree.
fn expected<'a>(model: &str, arguments: &str) -> Expected<'a> {
    match (model, arguments) {
        // The reference moves the pattern of the later layers.
        (_, "--tensor-type blk\\.0\\.attn_v=q8_0") => Expected::Rule("blk.0.attn_v.weight", DType::Q8_0),
        // The reference ignores rules for files of a float type.
        (_, "--tensor-type attn_v=q8_0 --output-tensor-type q6_k") => Expected::Rule("attn_v.weight", DType::Q8_0),
        // The reference ignores rules and options that apply to nothing, and case.
        (_, "--tensor-type norm=q8_0 --tensor-type nothing_like_this=q2_k") => {
            Expected::Error("--rule nothing_like_this=q2_k: no tensor name matches; `trueup inspect` lists the names")
        }
        (_, "--tensor-type ATTN_Q=q5_k") => {
            Expected::Error("--rule ATTN_Q=q5_k: no tensor name matches; `trueup inspect` lists the names")
        }
        ("llama-mha-8-tied", "--leave-output-tensor") => Expected::Error(
            "--leave-output-tensor: expected a tensor output.weight, found none; use --token-embedding-type",
        ),
        // The reference leaves a broken file.
        ("llama-272-ffn-400", "--output-tensor-type q6_k --token-embedding-type q4_K") => Expected::Error(
            "--token-embedding-type q4_k: expected rows of token_embd.weight with a multiple of 256 elements, found 272; \
            use f16; --output-tensor-type q6_k: expected rows of output.weight with a multiple of 256 elements, found 272; \
            use f16",
        ),
        _ => Expected::Same,
    }
}

#[test]
fn options_choose_the_types_of_the_reference_except_for_deliberate_differences() {
    let goldens = goldens();
    let mut differences = Vec::new();
    let runs = goldens["options"].as_array().expect("a list of runs");
    for run in runs {
        let text = |key: &str| run[key].as_str().expect("a text");
        let (name, recipe, arguments) = (text("model"), text("recipe"), text("arguments"));
        let model = Model::new(&goldens["models"][name]);
        let found = model.choose(&with_options(recipe, arguments), false);
        let run = format!("{name} {recipe} {arguments}");
        let (found, types) = match (expected(name, arguments), found) {
            (Expected::Error(sentence), found) => {
                assert_eq!(found.unwrap_err(), sentence, "{run}");
                continue;
            }
            (Expected::Same, found) => (found, model.expand(text("types"))),
            (Expected::Rule(part, dtype), found) => {
                let plain = goldens["models"][name]["runs"][recipe].as_str().unwrap_or(text("types"));
                let mut types = model.expand(plain);
                types.iter_mut().filter(|(tensor, _)| tensor.contains(part)).for_each(|(_, found)| *found = dtype);
                (found, types)
            }
        };
        match found {
            Ok(found) => differences.extend(model.compare(&run, &found, &types, |_| false)),
            Err(sentence) => differences.push(format!("{run}: {sentence}")),
        }
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
    assert_eq!(runs.len(), 32);
}
