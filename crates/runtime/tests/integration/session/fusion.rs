//! Sessions with fused operators give the bits of sessions without, and fuse only what the main device computes by
//! itself.

use super::{Kind, Without, bits, device, entries, model, model_of, prompts};
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_runtime::device::Device;
use trueup_runtime::plan::Plan;
use trueup_runtime::{DeviceOptions, ModelFile, Session, SessionOptions, Weights, open_device};

/// Fused operators, and their pieces in a layer with the last one first, which gives the name.
const FUSED: [(&str, [&str; 3]); 2] =
    [("kv_attention", ["kqv_out", "kq", "kq_soft_max"]), ("mul_mat_swiglu", ["ffn_swiglu", "ffn_gate", "ffn_up"])];

fn options(fusion: bool) -> SessionOptions {
    SessionOptions { sequences: 4, fusion, ..SessionOptions::default() }
}

fn plan(model: &Arc<ModelFile>, device: Arc<dyn Device>, options: &SessionOptions) -> Plan {
    let fallback = open_device("cpu", &DeviceOptions { threads: Some(1), ..DeviceOptions::default() }).unwrap();
    let weights = Arc::new(Weights::new(model.clone(), device, Some(fallback)));
    Session::plan(&weights, options, 3, 1, 3).unwrap()
}

/// Names of the fused nodes, with the names of what each was fused of.
fn fused(plan: &Plan) -> Vec<(String, Vec<String>)> {
    let nodes = plan.report().nodes.into_iter().filter(|node| !node.fused.is_empty());
    nodes.map(|node| (node.name, node.fused)).collect()
}

/// Scores of fused attention lie beside the arena, on each thread, and grow with what is looked at; those of its pieces
/// lie in the arena.
#[test]
fn room_for_scores_is_planned() {
    let (_folder, model) = model(DType::F32, false);
    let weights = Weights::new(model, device("cpu"), None);
    let scratch = |fusion, length| {
        let plan = Session::plan(&weights, &options(fusion), 1, 1, length).unwrap();
        let report = plan.report();
        assert_eq!(report.devices[0].scratch_bytes, plan.scratch_bytes(0));
        assert!(report.to_string().contains(&format!("{} of scratch", plan.scratch_bytes(0))), "{report}");
        plan.scratch_bytes(0)
    };
    assert!(scratch(true, 1) > 0 && scratch(true, 129) > scratch(true, 1));
    assert_eq!((scratch(false, 1), scratch(false, 129)), (0, 0));
}

#[test]
fn fusion_changes_no_bit() {
    for dtype in [DType::F32, DType::F16, DType::Q8_0, DType::Q4_0, DType::Q5_1] {
        let (_folder, model) = model(dtype, false);
        let weights = Arc::new(Weights::new(model.clone(), device("cpu"), None));
        let of = |fusion| {
            let mut session = Session::new(weights.clone(), &options(fusion)).unwrap();
            let prompt = bits(&mut session, &entries(&prompts()));
            let step: Vec<Vec<u32>> = (0..4).map(|sequence| vec![sequence + 3]).collect();
            (prompt, bits(&mut session, &entries(&step)))
        };
        assert_eq!(of(true), of(false), "{dtype}");
    }
}

#[test]
fn attention_and_feed_forward_of_every_layer_are_fused_and_their_pieces_are_known() {
    let (_folder, model) = model_of(Kind::Qwen3, 160, DType::Q8_0);
    let (on, off) = (plan(&model, device("cpu"), &options(true)), plan(&model, device("cpu"), &options(false)));
    let layers = model.model().spec().layer_count();
    assert_eq!((fused(&on).len(), fused(&off).len()), (2 * layers, 0));
    assert_eq!(on.graph().nodes().len() + 4 * layers, off.graph().nodes().len());
    for (index, (name, pieces)) in fused(&on).into_iter().enumerate() {
        let (layer, (_, [last, first, second])) = (index / 2, FUSED[index % 2]);
        assert_eq!(name, format!("{last}-{layer}"));
        assert_eq!(pieces, [first, second, last].map(|node| format!("{node}-{layer}")));
    }
    let text = on.report().to_string();
    for words in ["mul_mat_swiglu", "; with ffn_gate-0 and ffn_up-0", "kv_attention", "; with kq-0 and kq_soft_max-0"] {
        assert!(text.contains(words), "{text}");
    }
    assert!(on.arena_bytes(0) <= off.arena_bytes(0), "four results less are kept");
}

/// A device that lacks the whole, or one of the pieces, leaves the group as it is; so does the oracle's graph in f64.
#[test]
fn what_the_main_device_does_not_compute_itself_is_not_fused() {
    let (_folder, model) = model(DType::F32, false);
    let without = |op| Arc::new(Without { inner: device("cpu"), op });
    let pieces =
        [["kv_attention", "kv_scores", "soft_max", "kv_mix"].as_slice(), &["mul_mat_swiglu", "mul_mat", "swiglu"]];
    for ((group, (whole, [last, first, _])), op) in FUSED
        .into_iter()
        .enumerate()
        .flat_map(|(group, fused)| pieces[group].iter().map(move |op| ((group, fused), *op)))
    {
        let plan = plan(&model, without(op), &options(true));
        let nodes: Vec<String> = fused(&plan).into_iter().map(|(name, _)| name).collect();
        let (_, [other, ..]) = FUSED[1 - group];
        assert!(!nodes.contains(&format!("{last}-0")) && nodes.contains(&format!("{other}-0")), "{op}: {nodes:?}");
        assert!(plan.graph().nodes().iter().any(|node| node.name == format!("{first}-0")), "{op}");
        let falls_back = plan.nodes().iter().any(|node| node.fell_back.is_some());
        assert_eq!(falls_back, op != whole, "{op}");
    }
    assert!(fused(&plan(&model, device("ref"), &options(true))).is_empty());
    let f32_on_ref = SessionOptions { activation: Some(DType::F32), ..options(true) };
    assert!(!fused(&plan(&model, device("ref"), &f32_on_ref)).is_empty());
}
