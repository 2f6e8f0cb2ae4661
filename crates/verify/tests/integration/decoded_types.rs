//! A model in types with sub-blocks, tables or small scales, and in tq1_0, is opened, computed and verified; a fault on
//! it is found.
use std::path::Path;
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_formats::TensorInfo;
use trueup_formats::gguf::{GgufPlan, GgufWriter, Metadata};
use trueup_runtime::device::Device;
use trueup_runtime::{DeviceOptions, ModelFile, open_device};
use trueup_verify::{Outcome, Reference, Report, VerifyOptions, planted, verify};

const WIDTH: u64 = 256;
const VOCABULARY: u64 = 32;

/// A Llama of two layers: each matrix, its shape, its type, and how large the scales of its blocks are.
const MATRICES: [(&str, [u64; 2], DType, f32); 15] = [
    ("token_embd", [WIDTH, VOCABULARY], DType::Q6K, 4e-5),
    ("blk.0.attn_q", [WIDTH, WIDTH], DType::Q4K, 1e-4),
    ("blk.0.attn_k", [WIDTH, WIDTH / 2], DType::Q2K, 5e-3),
    ("blk.0.attn_v", [WIDTH, WIDTH / 2], DType::Q3K, 1e-3),
    ("blk.0.attn_output", [WIDTH, WIDTH], DType::Q5K, 5e-5),
    ("blk.0.ffn_gate", [WIDTH, WIDTH], DType::Iq4Nl, 5e-4),
    ("blk.0.ffn_up", [WIDTH, WIDTH], DType::Q4K, 1e-4),
    ("blk.0.ffn_down", [WIDTH, WIDTH], DType::Q6K, 4e-5),
    ("blk.1.attn_q", [WIDTH, WIDTH], DType::Iq4Xs, 4e-5),
    ("blk.1.attn_k", [WIDTH, WIDTH / 2], DType::Mxfp4, 8e-3),
    ("blk.1.attn_v", [WIDTH, WIDTH / 2], DType::Nvfp4, 8e-3),
    ("blk.1.attn_output", [WIDTH, WIDTH], DType::Tq1_0, 4e-2),
    ("blk.1.ffn_gate", [WIDTH, WIDTH], DType::Tq2_0, 4e-2),
    ("blk.1.ffn_up", [WIDTH, WIDTH], DType::Mxfp4, 8e-3),
    ("blk.1.ffn_down", [WIDTH, WIDTH], DType::Iq4Xs, 4e-5),
];

/// Blocks of any bytes, by a linear congruential generator, with one scale for all.
fn blocks(info: &TensorInfo, scale: f32, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let mut bytes: Vec<u8> = (0..info.bytes).map(|_| next()).collect();
    for block in bytes.chunks_exact_mut(info.dtype.block_bytes()) {
        match info.dtype {
            DType::Mxfp4 => block[0] = (128.0 + scale.log2()) as u8,
            // Below the normal numbers, in halves of 2^-9.
            DType::Nvfp4 => block[..4].fill((scale * 1024.0) as u8),
            dtype => {
                let mut stored = [0; 2];
                (DType::F16.codec().unwrap().encode)(&[scale], &mut stored);
                dtype.scale_places().unwrap().iter().for_each(|at| block[*at..at + 2].copy_from_slice(&stored));
            }
        }
    }
    bytes
}

fn metadata() -> Metadata {
    let mut metadata = Metadata::default();
    metadata.insert("general.architecture", "llama");
    let counts = [
        ("vocab_size", VOCABULARY as u32),
        ("context_length", 64),
        ("embedding_length", WIDTH as u32),
        ("block_count", 2),
        ("feed_forward_length", WIDTH as u32),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
    ];
    for (key, count) in counts {
        metadata.insert(format!("llama.{key}"), count);
    }
    metadata.insert("llama.attention.layer_norm_rms_epsilon", 1e-5f32);
    metadata.insert("llama.rope.freq_base", 10_000f32);
    metadata
}

fn write(path: &Path) {
    let (mut infos, mut contents) = (Vec::new(), Vec::new());
    for (seed, (name, shape, dtype, scale)) in (1..).zip(MATRICES) {
        let info = TensorInfo::new(format!("{name}.weight"), &shape, dtype).unwrap();
        contents.push(blocks(&info, scale, seed));
        infos.push(info);
    }
    for name in ["blk.0.attn_norm", "blk.0.ffn_norm", "blk.1.attn_norm", "blk.1.ffn_norm", "output_norm"] {
        infos.push(TensorInfo::new(format!("{name}.weight"), &[WIDTH], DType::F32).unwrap());
        contents.push(1.0f32.to_le_bytes().repeat(WIDTH as usize));
    }
    let writer = GgufWriter::create(GgufPlan::new(path, &metadata(), &infos, None).unwrap(), &[]).unwrap();
    contents.iter().enumerate().for_each(|(tensor, bytes)| writer.write(tensor, 0, bytes).unwrap());
    writer.finish().unwrap();
}

fn model() -> (tempfile::TempDir, Arc<ModelFile>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("k.gguf");
    write(&path);
    let model = ModelFile::open(&path).unwrap();
    (directory, Arc::new(model))
}

fn device(name: &str) -> Arc<dyn Device> {
    open_device(name, &DeviceOptions { threads: Some(2), ..DeviceOptions::default() }).unwrap()
}

fn verified(model: &Arc<ModelFile>, device: Arc<dyn Device>) -> Report {
    let options =
        VerifyOptions { prompts: vec![vec![1, 5, 9, 20, 31, 2], vec![30]], steps: 2, ..VerifyOptions::default() };
    verify(model.clone(), device, Reference::Oracle, &options, &mut |_| {}).unwrap()
}

#[test]
fn both_devices_pass_on_weights_in_these_types() {
    let (_directory, model) = model();
    for name in ["cpu", "ref"] {
        let report = verified(&model, device(name));
        assert_eq!(report.result, Outcome::Pass, "{name}: {}", report.sentence);
        assert_eq!(report.coverage.nodes, report.coverage.checked, "{name}");
    }
}

#[test]
fn a_fault_on_them_is_found() {
    let (_directory, model) = model();
    for name in ["ffn_up-0", "ffn_out-0", "ffn_gate-1", "result_output"] {
        let fault = planted(&format!("sign-flip@{name}"), &model, device("cpu")).unwrap();
        let report = verified(&model, fault.device);
        assert_eq!(report.first_bad.as_ref().map(|bad| bad.node.as_str()), Some(name), "{}", report.sentence);
    }
}

#[test]
fn faults_of_nibbles_high_bits_and_minima_are_found_and_explained() {
    let (_directory, model) = model();
    let nibbles = ["ffn_up-0", "attn_out-0", "ffn_out-0", "ffn_gate-0", "Qcur-1", "Kcur-1", "Vcur-1"];
    let minima = ["Qcur-0", "Kcur-0", "attn_out-0"];
    let of = |fault: &'static str, cause: &'static str| move |node: &&'static str| (fault, *node, cause);
    let high_bits = ["attn_out-0", "ffn_out-0"];
    let cases = nibbles.iter().map(of("nibble-order", "swaps the low and the high halves of 4-bit codes"));
    let cases = cases.chain(high_bits.iter().map(of("high-bits-lost", "drops the high bits of the codes")));
    for (fault, node, cause) in cases.chain(minima.iter().map(of("minimum-dropped", "omits the block minima"))) {
        let faulty = planted(&format!("{fault}@{node}"), &model, device("cpu")).unwrap();
        let first_bad = verified(&model, faulty.device).first_bad.expect(node);
        let found = first_bad.cause.unwrap_or_default();
        assert!(first_bad.node == node && found.contains(cause), "{fault} at {node}: {}: {found}", first_bad.node);
    }
    for (fault, node) in [("nibble-order", "Kcur-0"), ("nibble-order", "Vcur-0"), ("minimum-dropped", "ffn_out-0")] {
        assert!(planted(&format!("{fault}@{node}"), &model, device("cpu")).is_err(), "{fault} at {node}");
    }
}
