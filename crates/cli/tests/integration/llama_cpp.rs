//! `imatrix`, `quantize --imatrix` and `compare` on a mixture of experts, against what the programs of llama.cpp wrote
//! and printed for the same model and text. `scripts/make_moe_goldens.py` has their commands.

use crate::trueup::{Scratch, trueup};
use ::trueup::blocks::DType;
use ::trueup::formats::gguf::{GgufPlan, GgufWriter};
use ::trueup::formats::{Checkpoint, Gguf, SafetensorsFile, TensorInfo};
use std::path::{Path, PathBuf};

/// Tokens of a chunk.
const CONTEXT: &str = "64";

/// What llama-perplexity printed for the model in q4_0: the perplexity and its error.
const PERPLEXITY: (f64, f64) = (5839.355735, 727.302471);

/// Largest relative error. Both programs round the inputs of matrices in q4_0 to 8 bits, at values that differ in their
/// last bits: measured 0.0008. Of the same model in f32 it is 5e-6, see `scripts/check_llama_cpp_quality.py`.
const PERPLEXITY_ERROR_MAX: f64 = 2e-3;

/// The largest relative error of a sum over 704 tokens. Sums of f32 are in another order; those after the first
/// attention depend on the f16 numbers of the KV cache, whose last bits differ. Measured: 2e-4.
const SUM_ERROR_MAX: f64 = 1e-3;

/// The tensors of the first layer that are f32 in the goldens, and the weights that share the inputs of one of them.
const WEIGHTS: [&str; 4] = ["attn_q", "attn_k", "attn_v", "attn_output"];
const INPUTS: [(&str, &str); 7] = [
    ("attn_q", "attn_q"),
    ("attn_k", "attn_q"),
    ("attn_v", "attn_q"),
    ("attn_output", "attn_output"),
    ("ffn_gate_inp", "ffn_gate_inp"),
    ("ffn_gate_exps", "ffn_gate_exps"),
    ("ffn_up_exps", "ffn_gate_exps"),
];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/quality").join(name)
}

fn text() -> String {
    fixture("moe.txt").to_string_lossy().into_owned()
}

fn goldens() -> SafetensorsFile {
    SafetensorsFile::open(fixture("moe.safetensors")).expect("goldens are in the repository")
}

/// The bytes of a tensor.
fn bytes(file: &dyn Checkpoint, name: &str) -> Vec<u8> {
    let place = file.tensors().iter().position(|tensor| tensor.name == name).unwrap_or_else(|| panic!("no {name}"));
    let mut bytes = vec![0; file.tensors()[place].bytes as usize];
    file.read(place, 0, &mut bytes).expect("the file is whole");
    bytes
}

fn floats(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes))).collect()
}

/// Bytes of a tensor of the goldens.
fn golden(name: &str) -> Vec<u8> {
    let file = goldens();
    let place = file.find(name).unwrap_or_else(|| panic!("no {name}"));
    let mut bytes = vec![0; file.tensors()[place].bytes as usize];
    file.read(place, 0, &mut bytes).expect("the file is whole");
    bytes
}

/// Writes the model with the f32 weights of the goldens in place of its q4_0 blocks: the embedding of the text's
/// tokens, and the attention of the first layer.
fn write_f32(path: &str) {
    let source = Gguf::open(fixture("moe-q4_0.gguf")).expect("the model is in the repository");
    let (ids, rows) = (golden("ids"), golden("embedding"));
    let columns = 64;
    let mut embedding = vec![0; 288 * columns * 4];
    for (id, row) in ids.as_chunks().0.iter().zip(rows.chunks(4 * columns)) {
        let start = u32::from_le_bytes(*id) as usize * row.len();
        embedding[start..start + row.len()].copy_from_slice(row);
    }
    let replaced = |name: &str| match name {
        "token_embd.weight" => Some(embedding.clone()),
        _ => WEIGHTS.iter().find(|weight| name == format!("blk.0.{weight}.weight")).map(|weight| golden(weight)),
    };
    let tensors: Vec<(TensorInfo, Vec<u8>)> = source
        .tensors()
        .iter()
        .map(|tensor| match replaced(&tensor.name) {
            None => (tensor.clone(), bytes(&source, &tensor.name)),
            Some(bytes) => {
                let info = TensorInfo::new(tensor.name.as_str(), &tensor.shape, DType::F32);
                (info.expect("a small tensor"), bytes)
            }
        })
        .collect();
    let infos: Vec<TensorInfo> = tensors.iter().map(|(info, _)| info.clone()).collect();
    let plan = GgufPlan::new(Path::new(path), source.metadata(), &infos, None).expect("a plan");
    let writer = GgufWriter::create(plan, &[]).expect("a writer");
    tensors.iter().enumerate().for_each(|(number, (_, bytes))| writer.write(number, 0, bytes).expect("disk space"));
    writer.finish().expect("disk space");
}

#[test]
fn the_perplexity_is_that_of_llama_perplexity() {
    let model = fixture("moe-q4_0.gguf").to_string_lossy().into_owned();
    let call = ["compare", &model, "--corpus", &text(), "-c", CONTEXT, "--json", "-", "-q"];
    let report = trueup(&call).exits(0).json();
    let figures = &report["result"]["figures"];
    assert_eq!((&report["result"]["chunks"], &figures["positions"]), (&11.into(), &341.into()));
    let (value, error) = (figures["perplexity"]["value"].as_f64(), figures["perplexity"]["error"].as_f64());
    for (found, expected) in [(value, PERPLEXITY.0), (error, PERPLEXITY.1)] {
        let found = found.expect("a number");
        assert!((found / expected - 1.0).abs() < PERPLEXITY_ERROR_MAX, "{found}, llama-perplexity has {expected}");
    }
}

#[test]
fn sums_and_counts_are_those_of_llama_imatrix_and_give_the_blocks_of_llama_quantize() {
    let scratch = Scratch::new();
    let (model, imatrix, target) =
        (scratch.path("model.gguf"), scratch.path("imatrix.gguf"), scratch.path("q4_0.gguf"));
    write_f32(&model);
    trueup(&["imatrix", &model, "--corpus", &text(), "-c", CONTEXT, "-o", &imatrix, "-q"]).exits(0);
    let words = ["expected a model, found an importance matrix", "pass the model that it was measured on"];
    trueup(&["quantize", &imatrix, &target, "-b", "4", "-q"]).refuses(&words);
    trueup(&["convert", &imatrix, &target, "-q"]).refuses(&words);
    let found = Gguf::open(&imatrix).expect("it was just written");
    for (weight, input) in INPUTS {
        // The routing of all tokens.
        let counts = floats(&bytes(&found, &format!("blk.0.{weight}.weight.counts")));
        assert_eq!(counts, floats(&golden(&format!("{input}.counts"))), "{weight}");
        let sums = floats(&bytes(&found, &format!("blk.0.{weight}.weight.in_sum2")));
        let expected = floats(&golden(&format!("{input}.sums")));
        let errors = sums.iter().zip(&expected).map(|(sum, expected)| (sum - expected).abs() / expected.max(1e-9));
        let largest = errors.fold(0.0, f64::max);
        assert!(sums.len() == expected.len() && largest < SUM_ERROR_MAX, "{weight}: {largest}");
    }
    // Rounded differently, a sum may move a weight: the file of llama-imatrix gives the exact bytes.
    let call =
        ["quantize", &model, &target, "--type", "q4_0", "--pure", "--imatrix", &imatrix, "--imatrix-exact", "-q"];
    trueup(&[&call[..], &["--allow-partial-imatrix"]].concat()).exits(0);
    let (ours, theirs) =
        (Gguf::open(&target).expect("a model"), Gguf::open(fixture("moe-q4_0.gguf")).expect("a model"));
    for weight in WEIGHTS {
        let name = format!("blk.0.{weight}.weight");
        let (found, expected) = (bytes(&ours, &name), bytes(&theirs, &name));
        let blocks = found.chunks(18).zip(expected.chunks(18));
        let different = blocks.filter(|(found, expected)| found != expected).count();
        assert!(found.len() == expected.len() && different <= 1, "{name}: {different} blocks differ");
    }
}
