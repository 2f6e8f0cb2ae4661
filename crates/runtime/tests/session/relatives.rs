//! Models with sliding windows, biases, norms of heads and factors of rope's frequencies.

use super::tiny_model::{CONTEXT, Kind, VOCABULARY, WINDOW};
use super::{bits, device, distance_to_the_oracle, entries, expect_batch_equals_alone, model_of, prompts, session};
use trueup_blocks::DType;
use trueup_graph::Input;
use trueup_runtime::{Session, SessionOptions};

const RELATIVES: [Kind; 2] = [Kind::Qwen2, Kind::Qwen3];

#[test]
fn a_batch_equals_each_sequence_alone() {
    for kind in RELATIVES {
        for (name, dtype) in [("ref", DType::F32), ("cpu", DType::F32), ("cpu", DType::Q8_0)] {
            let (_folder, model) = model_of(kind, CONTEXT, dtype);
            expect_batch_equals_alone(&model, name, &format!("{kind:?}, {name}, {dtype}"));
        }
    }
}

#[test]
fn cpu_is_near_the_oracle() {
    for kind in RELATIVES {
        for (dtype, most) in [(DType::F32, 1e-9), (DType::Q8_0, 1e-2)] {
            let (_folder, model) = model_of(kind, CONTEXT, dtype);
            let distance = distance_to_the_oracle(&model);
            assert!(distance < most, "{kind:?}, {dtype}: {distance:e}");
        }
    }
}

#[test]
fn the_graphs_hold_what_the_models_have() {
    let (mask, mask_window) = (Input::Mask.name(), Input::MaskWindow.name());
    for (kind, names) in [
        (Kind::Qwen2, ["Qcur_bias-0", "Kcur_bias-1", "Vcur_bias-0", mask, mask_window]),
        (Kind::Qwen3, ["Qcur_normed-0", "Qcur_normed-1", "Kcur_normed-1", "rope_freqs.weight", mask_window]),
    ] {
        let (_folder, model) = model_of(kind, CONTEXT, DType::F32);
        let session = session(&model, device("ref"), SessionOptions::default());
        let plan = Session::plan(session.weights(), &SessionOptions::default(), 1, 1, 1).unwrap();
        for name in names {
            assert!(plan.graph().find(name).is_some(), "{kind:?} has {name}");
        }
    }
}

/// With a window on both layers a token hears of those up to twice `WINDOW - 1` places before it, and of no other.
#[test]
fn a_window_ends_where_it_says() {
    let (_folder, model) = model_of(Kind::Qwen3, CONTEXT, DType::F32);
    let mut prompt = prompts()[1].clone();
    for name in ["ref", "cpu"] {
        let mut of = |first: u32| {
            prompt[0] = first;
            bits(&mut session(&model, device(name), SessionOptions::default()), &entries(std::slice::from_ref(&prompt)))
        };
        let (one, other) = (of(1), of(VOCABULARY as u32 - 1));
        let reach = 2 * (WINDOW - 1);
        for (position, (one, other)) in one.iter().zip(&other).enumerate() {
            assert_eq!(one == other, position > reach, "{name}, position {position}");
        }
    }
}
