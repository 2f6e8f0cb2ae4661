//! Texts that nobody waits for any more end at once, in their prompts too, and leave nothing behind.

use super::{device, entries, model, prompts, session, tiny_model};
use std::collections::HashMap;
use std::ops::ControlFlow;
use trueup_blocks::DType;
use trueup_runtime::{
    ContextShift, Finish, GenerateOptions, Generated, Sampling, Session, SessionOptions, Watch, generate_watched,
};

/// Cancels prompts when they were asked about, or seen, so often.
#[derive(Default)]
struct Script {
    /// Cancelled when asked for this time, from 0.
    at_question: HashMap<usize, usize>,
    /// Ended behind so many tokens.
    at_token: HashMap<usize, usize>,
    questions: HashMap<usize, usize>,
    tokens: HashMap<usize, Vec<u32>>,
}

impl Watch for Script {
    fn is_cancelled(&mut self, prompt: usize) -> bool {
        let asked = self.questions.entry(prompt).or_default();
        *asked += 1;
        self.at_question.get(&prompt).is_some_and(|question| *asked > *question)
    }

    fn saw_token(&mut self, prompt: usize, id: u32) -> ControlFlow<()> {
        let seen = self.tokens.entry(prompt).or_default();
        seen.push(id);
        if self.at_token.get(&prompt) == Some(&seen.len()) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

fn options() -> GenerateOptions {
    let context_shift = Some(ContextShift { keep: Some(2) });
    GenerateOptions { tokens_max: Some(12), sampling: Sampling::GREEDY, context_shift, ..GenerateOptions::default() }
}

fn sized(sequences: usize, prompt_chunk: usize) -> SessionOptions {
    SessionOptions { context: Some(80), sequences, prompt_chunk, ..SessionOptions::default() }
}

fn run(session: &mut Session, prompts: &[Vec<u32>], options: &GenerateOptions, script: &mut Script) -> Vec<Generated> {
    generate_watched(session, prompts, options, script).unwrap()
}

fn ids(results: &[Generated]) -> Vec<&[u32]> {
    results.iter().map(|result| &result.ids[..]).collect()
}

#[test]
fn a_long_prompt_is_cancelled_between_its_pieces() {
    let (_folder, model) = model(DType::F32, false);
    let mut session = session(&model, device("cpu"), sized(1, 10));
    let long = vec![prompts()[1].clone()];
    for question in [0, 1, 3, 6] {
        let before = session.batches();
        let mut script = Script { at_question: [(0, question)].into(), ..Script::default() };
        let cancelled = run(&mut session, &long, &options(), &mut script).remove(0);
        assert_eq!((cancelled.finish, cancelled.ids.len(), cancelled.shifts), (Finish::Stopped, 0, 0));
        assert_eq!(session.batches() - before, question, "one piece between two questions");
        assert_eq!((cancelled.prompt_ms, cancelled.decode_ms), (0.0, 0.0));
        assert!(script.tokens.is_empty());
    }
    let mut script = Script { at_question: [(0, 7)].into(), ..Script::default() };
    let late = run(&mut session, &long, &options(), &mut script).remove(0);
    assert_eq!((late.finish, late.ids.len()), (Finish::Stopped, 1), "seven pieces, then a token");
    assert!(late.prompt_ms > 0.0);
}

#[test]
fn kept_logits_of_a_cancelled_prompt_are_those_that_were_computed() {
    let (_folder, model) = model(DType::F32, false);
    let mut session = session(&model, device("cpu"), sized(1, 10));
    let mut script = Script { at_question: [(0, 3)].into(), ..Script::default() };
    let keeping = GenerateOptions { keep_logits: true, ..options() };
    let kept = run(&mut session, &prompts()[1..2], &keeping, &mut script).remove(0).logits.unwrap();
    let whole = run(&mut session, &prompts()[1..2], &keeping, &mut Script::default()).remove(0).logits.unwrap();
    assert_eq!((kept.prompt.len(), kept.generated.len()), (30 * tiny_model::VOCABULARY, 0));
    assert_eq!(kept.prompt, whole.prompt[..kept.prompt.len()]);
}

#[test]
fn what_is_cancelled_changes_no_bit_of_the_others() {
    let (_folder, model) = model(DType::Q8_0, false);
    let mut all = prompts();
    all.extend(prompts());
    let expected = run(&mut session(&model, device("cpu"), sized(8, 512)), &all, &options(), &mut Script::default());
    for sequences in [1, 3, 8] {
        let mut script =
            Script { at_question: [(1, 2), (3, 0), (6, 9)].into(), at_token: [(4, 5)].into(), ..Script::default() };
        let results = run(&mut session(&model, device("cpu"), sized(sequences, 16)), &all, &options(), &mut script);
        for (number, (result, expected)) in results.iter().zip(&expected).enumerate() {
            let is_cut = [1, 3, 4, 6].contains(&number);
            assert_eq!(result.finish == Finish::Stopped, is_cut, "prompt {number} of {sequences} at once");
            let end = result.ids.len();
            assert_eq!(result.ids[..], expected.ids[..end], "prompt {number} of {sequences} at once");
            assert_eq!(end == expected.ids.len(), !is_cut);
        }
        assert_eq!(results[3].ids.len(), 0);
        assert_eq!(results[4].ids.len(), 5);
    }
}

#[test]
fn a_session_is_as_good_as_new_behind_a_cancelled_text() {
    let (_folder, model) = model(DType::F16, false);
    for reuse in [false, true] {
        let options = GenerateOptions { reuse, ..options() };
        let mut used = session(&model, device("cpu"), sized(2, 16));
        for question in 0..6 {
            let at_question = [(0, question), (1, 2), (3, question / 2)].into();
            run(&mut used, &prompts(), &options, &mut Script { at_question, ..Script::default() });
            let after = run(&mut used, &prompts(), &options, &mut Script::default());
            let mut fresh = session(&model, device("cpu"), sized(2, 16));
            let expected = run(&mut fresh, &prompts(), &options, &mut Script::default());
            assert_eq!(ids(&after), ids(&expected), "reuse {reuse}, question {question}");
        }
        used.truncate(0, 0);
        let bits = super::bits(&mut used, &entries(&prompts()[..1]));
        let mut fresh = session(&model, device("cpu"), sized(2, 16));
        assert_eq!(bits, super::bits(&mut fresh, &entries(&prompts()[..1])));
    }
}

#[test]
fn nothing_is_computed_where_an_id_is_none_of_the_vocabulary() {
    let (_folder, model) = model(DType::F32, false);
    let mut session = session(&model, device("cpu"), sized(2, 8));
    let mut bad = prompts();
    bad[1][60] = tiny_model::VOCABULARY as u32;
    let error = generate_watched(&mut session, &bad, &options(), &mut Script::default()).unwrap_err().to_string();
    assert!(error.contains("expected token IDs from 0 to 47, found 48"), "{error}");
    assert_eq!((session.batches(), session.len(0)), (0, 0));
}
