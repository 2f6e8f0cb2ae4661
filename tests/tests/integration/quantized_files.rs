//! Whole files: the bytes that llama-quantize writes for made models, with and without an importance matrix.

use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use trueup::blocks::DType;
use trueup::formats::gguf::{GgufPlan, GgufWriter, Metadata};
use trueup::formats::{Gguf, Importance, TensorInfo};
use trueup::quantize::{ImportanceOptions, Layout, NoProgress, Options, Recipe, Report, Scheme, quantize_with};
use trueup_tests::root;

/// A made model, as `scripts/make_quantized_file_goldens.py` writes it.
#[derive(Clone, Copy)]
struct Model {
    name: &'static str,
    layers: u32,
    heads: u32,
    kv_heads: u32,
    width: u32,
    ffn: u32,
    experts: u32,
}

const MODELS: [Model; 3] = [
    Model { name: "dense", layers: 2, heads: 4, kv_heads: 1, width: 256, ffn: 256, experts: 0 },
    Model { name: "experts", layers: 1, heads: 4, kv_heads: 1, width: 256, ffn: 96, experts: 3 },
    Model { name: "narrow", layers: 2, heads: 3, kv_heads: 1, width: 96, ffn: 96, experts: 0 },
];

const VOCABULARY: u64 = 32;

/// Integers of 24 bits.
fn random(count: usize, seed: usize) -> impl Iterator<Item = f32> {
    let mut state = (seed as u32).wrapping_mul(2_654_435_761).wrapping_add(1);
    (0..count).map(move |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32
    })
}

fn bytes_of(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values.flat_map(f32::to_le_bytes).collect()
}

/// Writes tensors of f32.
fn write(path: &Path, metadata: &Metadata, tensors: &[(String, Vec<u64>, Vec<u8>)]) {
    let info = |(name, shape, _): &(String, Vec<u64>, Vec<u8>)| {
        TensorInfo::new(name.as_str(), shape, DType::F32).expect("a small tensor")
    };
    let infos: Vec<TensorInfo> = tensors.iter().map(info).collect();
    let plan = GgufPlan::new(path, metadata, &infos, None).expect("a plan");
    let writer = GgufWriter::create(plan, &[]).expect("a writer");
    tensors.iter().enumerate().for_each(|(number, (_, _, bytes))| writer.write(number, 0, bytes).expect("space"));
    writer.finish().expect("space");
}

impl Model {
    /// Names and shapes, innermost first, in the order of the output.
    fn tensors(&self) -> Vec<(String, Vec<u64>)> {
        let [width, ffn, experts] = [self.width, self.ffn, self.experts].map(u64::from);
        let kv = width / u64::from(self.heads) * u64::from(self.kv_heads);
        let stack = |shape: [u64; 2]| shape.into_iter().chain((experts > 0).then_some(experts)).collect::<Vec<u64>>();
        let suffix = if experts > 0 { "_exps" } else { "" };
        let mut tensors = vec![
            ("output.weight".to_owned(), vec![width, VOCABULARY]),
            ("output_norm.weight".to_owned(), vec![width]),
            ("token_embd.weight".to_owned(), vec![width, VOCABULARY]),
        ];
        for layer in 0..self.layers {
            let mut parts = vec![
                ("attn_k".to_owned(), vec![width, kv]),
                ("attn_norm".to_owned(), vec![width]),
                ("attn_output".to_owned(), vec![width, width]),
                ("attn_q".to_owned(), vec![width, width]),
                ("attn_v".to_owned(), vec![width, kv]),
                (format!("ffn_down{suffix}"), stack([ffn, width])),
                (format!("ffn_gate{suffix}"), stack([width, ffn])),
            ];
            parts.extend((experts > 0).then(|| ("ffn_gate_inp".to_owned(), vec![width, experts])));
            parts.extend([("ffn_norm".to_owned(), vec![width]), (format!("ffn_up{suffix}"), stack([width, ffn]))]);
            tensors.extend(parts.into_iter().map(|(name, shape)| (format!("blk.{layer}.{name}.weight"), shape)));
        }
        tensors
    }

    /// Writes the model in f32.
    fn write(&self, path: &Path) {
        let mut metadata = Metadata::default();
        metadata.insert("general.architecture", "llama");
        let numbers = [
            ("context_length", 128),
            ("embedding_length", self.width),
            ("block_count", self.layers),
            ("feed_forward_length", self.ffn),
            ("attention.head_count", self.heads),
            ("attention.head_count_kv", self.kv_heads),
        ];
        numbers.iter().for_each(|(key, number)| drop(metadata.insert(format!("llama.{key}"), *number)));
        metadata.insert("llama.attention.layer_norm_rms_epsilon", 2f32.powi(-16));
        metadata.insert("llama.rope.dimension_count", self.width / self.heads);
        metadata.insert("general.file_type", 0u32);
        if self.experts > 0 {
            metadata.insert("llama.expert_count", self.experts);
            metadata.insert("llama.expert_used_count", 2u32);
        }
        let filled = self.tensors().into_iter().enumerate().map(|(seed, (name, shape))| {
            let values = random(shape.iter().product::<u64>() as usize, seed).map(|value| value / 2f32.powi(23) - 1.0);
            (name, shape, bytes_of(values))
        });
        write(path, &metadata, &filled.collect::<Vec<_>>());
    }

    /// For each weight of a layer: its name, columns, sums, and a count for each matrix. Some of both are zero.
    fn importance(&self) -> Vec<(String, usize, Vec<f32>, Vec<f32>)> {
        let mut tensors = self.tensors();
        tensors.sort();
        let named = tensors.into_iter().enumerate();
        let weights = named
            .filter(|(_, (name, shape))| shape.len() > 1 && name.starts_with("blk.") && !name.contains("ffn_gate_inp"));
        let entry = |(seed, (name, shape)): (usize, (String, Vec<u64>))| {
            let (columns, matrices) = (shape[0] as usize, shape.get(2).map_or(1, |count| *count as usize));
            let sums = random(columns * matrices, 100 + seed).map(|value| value / 2f32.powi(16));
            let is_zero = |place: usize| (32..64).contains(&(place % columns)) || matrices > 1 && place / columns == 1;
            let sums = sums.enumerate().map(|(place, sum)| if is_zero(place) { 0.0 } else { sum }).collect();
            let counts = (0..matrices).map(|matrix| if matrices > 1 && matrix == 1 { 0.0 } else { 64.0 }).collect();
            (name, columns, sums, counts)
        };
        weights.map(entry).collect()
    }

    /// Writes the importance as GGUF, and next to it as .dat.
    fn write_importance(&self, path: &Path) {
        let mut metadata = Metadata::default();
        metadata.insert("general.type", "imatrix");
        metadata.insert("imatrix.datasets", vec!["text.txt".to_owned()]);
        metadata.insert("imatrix.chunk_count", 5u32);
        metadata.insert("imatrix.chunk_size", 64u32);
        let entries = self.importance();
        let number = |number: usize| (number as i32).to_le_bytes().to_vec();
        let (mut tensors, mut legacy) = (Vec::new(), number(entries.len()));
        for (name, columns, sums, counts) in entries {
            let matrices = counts.len() as u64;
            let shape = |row: u64| if matrices > 1 { vec![row, matrices] } else { vec![row] };
            tensors.push((format!("{name}.in_sum2"), shape(columns as u64), bytes_of(sums.iter().copied())));
            tensors.push((format!("{name}.counts"), shape(1), bytes_of(counts.iter().copied())));
            let mean = |(place, sum): (usize, &f32)| if counts[place / columns] > 0.0 { sum / 64.0 * 5.0 } else { 5.0 };
            let means = bytes_of(sums.iter().enumerate().map(mean));
            legacy.extend([number(name.len()), name.into_bytes(), number(5), number(sums.len()), means].concat());
        }
        legacy.extend([number(5), number(8), b"text.txt".to_vec()].concat());
        write(path, &metadata, &tensors);
        fs::write(path.with_extension("dat"), legacy).expect("space");
    }
}

/// Quantizes the model in a folder to `out.gguf`, with the importance file of this name.
fn quantized(folder: &Path, recipe: &str, file: Option<&str>, exact: bool) -> (Report, PathBuf) {
    let mut policy = Recipe::of(Scheme::from_name(recipe));
    // Recipes whose ends differ on purpose are compared with the same ends.
    if ["Q4_0", "Q4_1", "Q5_0", "Q5_1"].contains(&recipe) {
        policy = policy.output(Some(DType::Q8_0)).token_embedding(Some(DType::Q8_0));
    }
    let options = Options { recipe: policy, layout: Layout::Block, threads: None, dry_run: false, resume: false };
    let importance = file.map(|file| ImportanceOptions {
        file: Importance::open(folder.join(file)).expect("it was just written"),
        allow_partial: true,
        exact,
    });
    let source = Gguf::open(folder.join("model.gguf")).expect("it was just written");
    let target = folder.join("out.gguf");
    let report = quantize_with(&source, &target, &options, importance.as_ref(), &NoProgress);
    (report.unwrap_or_else(|error| panic!("{error}")), target)
}

#[test]
fn files_are_those_of_llama_quantize() {
    let text = fs::read(root().join("fixtures/recipes/files.json")).expect("goldens are in the repository");
    let goldens: Value = serde_json::from_slice(&text).expect("goldens are JSON");
    let files = goldens["files"].as_object().expect("hashes by run");
    let mut differences = Vec::new();
    for model in MODELS {
        let folder = tempfile::tempdir().expect("a scratch directory");
        model.write(&folder.path().join("model.gguf"));
        model.write_importance(&folder.path().join("importance.gguf"));
        for (run, hash) in files {
            let words: Vec<&str> = run.split(' ').collect();
            let [name, recipe, file] = words.as_slice() else { panic!("{run}: expected three words") };
            if *name == model.name {
                let (_, target) = quantized(folder.path(), recipe, Some(*file).filter(|file| *file != "-"), true);
                let found = Sha256::digest(fs::read(target).expect("it was just written"));
                let found: String = found.iter().map(|byte| format!("{byte:02x}")).collect();
                differences.extend((hash != found.as_str()).then_some(run));
            }
        }
    }
    assert!(differences.is_empty(), "{} of {} files differ: {differences:?}", differences.len(), files.len());
    assert_eq!(files.len(), 3 * (20 + 19 + 2));
}

#[test]
fn columns_without_importance_keep_their_values_unless_the_bytes_of_the_reference_are_asked_for() {
    let folder = tempfile::tempdir().expect("a scratch directory");
    MODELS[0].write(&folder.path().join("model.gguf"));
    MODELS[0].write_importance(&folder.path().join("importance.gguf"));
    let similarity = |exact: bool| {
        let (report, _) = quantized(folder.path(), "Q6_K", Some("importance.gguf"), exact);
        let line = report.tensors.iter().find(|line| line.name == "blk.0.attn_q.weight").expect("a matrix");
        (line.cosine.expect("measured"), report.notes)
    };
    let ((kept, notes), (lost, exact_notes)) = (similarity(false), similarity(true));
    // 32 of 256 columns are zero.
    assert!(kept > 0.999 && (lost - (7.0f64 / 8.0).sqrt()).abs() < 0.01, "{kept} {lost}");
    let has_groups =
        |notes: &[String]| notes.iter().any(|note| note.contains("28 groups of columns with importance 0"));
    assert!(has_groups(&notes) && !has_groups(&exact_notes), "{notes:?}");
}
