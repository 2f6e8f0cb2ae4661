//! Contexts that shift: what is computed behind a shift is what a fresh session of the remaining tokens gives, bit for
//! bit.

use super::tiny_model::{CONTEXT, DIVIDING, Kind, VOCABULARY};
use super::{device, model, model_of, prompts, session};
use std::ops::ControlFlow;
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_runtime::{
    ContextShift, Entry, Finish, GenerateOptions, Generated, ModelFile, Sampling, Session, SessionOptions, generate,
};

/// Tokens that a sequence holds here.
const ROOM: usize = 24;

fn options(keep: Option<usize>, tokens: usize) -> GenerateOptions {
    GenerateOptions {
        tokens_max: Some(tokens),
        sampling: Sampling::GREEDY,
        keep_logits: true,
        context_shift: Some(ContextShift { keep }),
        ..GenerateOptions::default()
    }
}

fn sized(context: usize, sequences: usize) -> SessionOptions {
    SessionOptions { context: Some(context), sequences, prompt_chunk: 9, ..SessionOptions::default() }
}

fn shifted(session: &mut Session, prompts: &[Vec<u32>], options: &GenerateOptions) -> Vec<Generated> {
    generate(session, prompts, options, &mut |_, _| ControlFlow::Continue(())).unwrap()
}

/// The largest logit of each token, the lowest id among equals, by a session that held nothing before the last shift;
/// and each row of logits.
fn afresh(
    model: &Arc<ModelFile>,
    name: &str,
    prompt: &[u32],
    keep: usize,
    tokens: usize,
) -> (Vec<u32>, Vec<f32>, usize) {
    let (mut held, mut ids, mut rows, mut shifts) = (prompt.to_vec(), Vec::new(), Vec::new(), 0);
    let new = || session(model, device(name), sized(ROOM, 1));
    let mut fresh = new();
    for _ in 0..tokens {
        if held.len() > ROOM {
            let rest = held.split_off(keep);
            // The last one did not fit.
            held.extend(&rest[(ROOM - keep) / 2..]);
            (fresh, shifts) = (new(), shifts + 1);
        }
        let from = fresh.len(0);
        let entry =
            |(index, token): (usize, &u32)| Entry { token: *token, sequence: 0, wants_logits: index + 1 == held.len() };
        let entries: Vec<Entry> = held.iter().enumerate().skip(from).map(entry).collect();
        let logits = fresh.compute(&entries, None).unwrap();
        let row = logits.row(0);
        let best = (0..row.len()).rev().max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
        rows.extend(row.iter().map(|logit| *logit as f32));
        ids.push(best as u32);
        held.push(best as u32);
    }
    (ids, rows, shifts)
}

fn expect_as_afresh(model: &Arc<ModelFile>, name: &str, prompts: &[Vec<u32>], keep: Option<usize>, what: &str) {
    let tokens = 60;
    let together = shifted(&mut session(model, device(name), sized(ROOM, 2)), prompts, &options(keep, tokens));
    for (prompt, generated) in prompts.iter().zip(together) {
        let kept = keep.map_or(prompt.len(), |keep| keep.min(prompt.len()));
        let (ids, rows, shifts) = afresh(model, name, prompt, kept, tokens);
        let len = prompt.len();
        assert_eq!((&generated.ids, generated.finish), (&ids, Finish::Length), "{what}, {len} tokens");
        assert_eq!(generated.shifts, shifts, "{what}, {len} tokens");
        assert!(shifts > 2, "{what}: {shifts} shifts");
        let logits = generated.logits.unwrap();
        assert_eq!(logits.prompt.len(), len * VOCABULARY, "{what}");
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
        assert_eq!(bits(&logits.generated), bits(&rows), "{what}, {len} tokens");
    }
}

/// Prompts of different lengths, one of them as long as the context: their contexts are full at different times.
fn short_prompts() -> Vec<Vec<u32>> {
    vec![prompts()[0].clone(), prompts()[1][..ROOM].to_vec(), prompts()[2].clone(), prompts()[3].clone()]
}

#[test]
fn behind_a_shift_the_logits_are_those_of_a_fresh_session() {
    let (_folder, model) = model(DType::Q8_0, false);
    for (name, keep) in [("cpu", Some(0)), ("cpu", Some(5)), ("cpu", Some(ROOM - 2)), ("ref", Some(4))] {
        expect_as_afresh(&model, name, &short_prompts(), keep, &format!("{name}, keep {keep:?}"));
    }
    let (two, whole) = (short_prompts(), [0, 3]);
    expect_as_afresh(&model, "cpu", &whole.map(|number| two[number].clone()), None, "the whole prompt");
}

#[test]
fn models_with_sliding_windows_shift_too() {
    for kind in [Kind::Qwen2, Kind::Qwen3] {
        let (_folder, model) = model_of(kind, CONTEXT, DType::F32);
        expect_as_afresh(&model, "cpu", &short_prompts(), Some(3), &format!("{kind:?}"));
    }
}

/// Kept tokens saw those that are dropped, unless the kept ones hold the whole beginning.
#[test]
fn beginnings_that_see_themselves_shift_too() {
    let (_folder, model) = model_of(Kind::ChatGlm, CONTEXT, DType::F32);
    let [end, mark, other_mark] = DIVIDING;
    let mut prompts = [vec![5, 6, 7, 8, 9, 10, 11, mark, end], vec![3, other_mark, 4, 9, end, 12, 13], vec![1, 2, 3]];
    prompts[2].extend(4..ROOM as u32);
    for (name, keep) in [("cpu", 0), ("cpu", 3), ("cpu", 8), ("cpu", 9), ("cpu", 12), ("ref", 4)] {
        expect_as_afresh(&model, name, &prompts, Some(keep), &format!("{name}, keep {keep}"));
    }
}

#[test]
fn a_shift_forgets_no_random_number_and_no_recent_token() {
    let (_folder, model) = model(DType::F32, false);
    let sampling = Sampling { seed: 5, repeat_penalty: 1.3, repeat_last: 40, ..Sampling::default() };
    let of = |shift: Option<ContextShift>, context: usize| {
        let options = GenerateOptions { sampling, context_shift: shift, ..options(None, 70) };
        shifted(&mut session(&model, device("cpu"), sized(context, 1)), &short_prompts()[..1], &options).remove(0)
    };
    let (whole, cut) = (of(None, CONTEXT), of(Some(ContextShift { keep: Some(0) }), ROOM));
    assert_eq!((whole.shifts, whole.ids.len(), cut.ids.len()), (0, 70, 70));
    let before = ROOM - short_prompts()[0].len() + 1;
    assert_eq!(whole.ids[..before], cut.ids[..before], "as long as nothing is dropped");
    assert_ne!(whole.ids, cut.ids, "what is dropped matters");
    // The sampler counts on over the shift: the same logits, drawn from behind the same tokens, by a sampler of its
    // own.
    let mut sampler = trueup_runtime::Sampler::new(sampling, &short_prompts()[0]).unwrap();
    let logits = cut.logits.unwrap().generated;
    let drawn: Vec<u32> = logits
        .chunks(VOCABULARY)
        .map(|row| sampler.sample(&row.iter().map(|logit| f64::from(*logit)).collect::<Vec<f64>>()).unwrap())
        .collect();
    assert_eq!(drawn, cut.ids);
}

#[test]
fn what_stays_must_leave_room() {
    let (_folder, model) = model(DType::F32, false);
    let mut session = session(&model, device("cpu"), sized(ROOM, 1));
    let mut ask = |keep, len: usize| {
        let prompt = prompts()[1][..len].to_vec();
        generate(&mut session, &[prompt], &options(keep, 40), &mut |_, _| ControlFlow::Continue(()))
    };
    for (keep, len) in [(Some(ROOM - 1), ROOM), (Some(usize::MAX), ROOM - 1), (None, ROOM - 1), (None, ROOM)] {
        let error = ask(keep, len).unwrap_err().to_string();
        assert!(error.contains("leave no space in a context of 24; keep at most 22, or"), "{error}");
    }
    // A prompt that is shorter stays whole.
    assert_eq!(ask(Some(usize::MAX), 3).unwrap()[0].ids, ask(None, 3).unwrap()[0].ids);
    assert_eq!(ask(None, ROOM - 2).unwrap()[0].ids.len(), 40);
    let long = ask(Some(2), ROOM + 1).unwrap_err().to_string();
    assert!(long.contains("25 tokens, more than the context of 24"), "{long}");
}

#[test]
fn a_shift_needs_the_room_of_its_context() {
    let (_folder, model) = model(DType::F32, false);
    for context in [1, 2] {
        let mut session = session(&model, device("cpu"), sized(context, 1));
        let result = generate(&mut session, &[vec![1]], &options(Some(0), 9), &mut |_, _| ControlFlow::Continue(()));
        // Of one token nothing can be dropped, which is said before anything is computed.
        match result {
            Ok(results) => assert_eq!((context, results[0].shifts), (2, 7)),
            Err(error) => assert_eq!(
                error.to_string(),
                "prompt 0: a context of 1 cannot shift; shifting needs at least 2 tokens; increase the context"
            ),
        }
        assert_eq!(session.batches() > 0, context == 2);
    }
}
