//! Models with sliding windows, biases, norms of heads and factors of rope's frequencies.

use super::tiny_model::{CONTEXT, DIVIDING, Kind, VOCABULARY, WINDOW};
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

/// What a sequence holds is used again where a fresh session would compute the same, and nowhere else.
#[test]
fn beginnings_that_see_themselves_are_used_again_where_they_are_the_same() {
    let (_folder, model) = model_of(Kind::ChatGlm, CONTEXT, DType::F32);
    let [end, mark, other_mark] = DIVIDING;
    // What is held, of which so much is computed at once and the rest token by token; a text; and how much of it is
    // there already.
    let cases: [(&[u32], usize, &[u32], usize); 9] = [
        (&[1, 2, mark, end, 5, 6], 4, &[1, 2, mark, end, 5, 6, 7], 6),
        (&[1, 2, mark, end, 5, 6], 4, &[1, 2, mark, end, 5, 8, 7], 5),
        (&[1, 2, mark, end, 5, 6], 4, &[1, 3, mark, end, 5, 6, 7], 0),
        (&[1, 2, mark, end, 5, 6], 4, &[1, 2, mark, 4, end, 5, 6], 0),
        // The mark of the longer text stands elsewhere.
        (&[1, 2, end, 5, 6], 3, &[1, 2, end, 5, 6, mark, 8], 0),
        (&[1, other_mark, end, 5, mark, 6], 3, &[1, other_mark, end, 5, mark, 6, 8], 0),
        (&[1, 2, mark, end, 5, mark], 4, &[1, 2, mark, end, 5, mark, 8], 6),
        // Nothing saw itself while there was no end.
        (&[1, 2, 3, end, 5], 3, &[1, 2, 3, end, 5, 6], 0),
        (&[1, 2, 3, mark], 3, &[1, 2, 3, mark, 4], 4),
    ];
    for (held, at_once, text, expected) in cases {
        let mut used = session(&model, device("cpu"), SessionOptions::default());
        used.compute(&entries(&[held[..at_once].to_vec()]), None).unwrap();
        held[at_once..].iter().for_each(|id| drop(used.compute(&entries(&[vec![*id]]), None).unwrap()));
        let common = used.common(0, text);
        assert_eq!(common, expected, "{held:?}, {text:?}");
        used.truncate(0, common);
        let again = bits(&mut used, &entries(&[text[common..].to_vec()]));
        let mut fresh = session(&model, device("cpu"), SessionOptions::default());
        assert!(again[..] == bits(&mut fresh, &entries(&[text.to_vec()]))[common..], "{held:?}, {text:?}");
    }
}
