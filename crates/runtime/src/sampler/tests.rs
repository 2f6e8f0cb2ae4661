use super::*;
use proptest::prelude::*;

fn sampler(sampling: Sampling) -> Sampler {
    Sampler::new(sampling, &[]).unwrap()
}

/// Ids that remain of `logits`, likeliest first.
fn narrowed(sampling: Sampling, logits: &[f64]) -> Vec<u32> {
    let mut candidates: Vec<Candidate> = (0..).zip(logits).map(|(id, logit)| Candidate { id, logit: *logit }).collect();
    sampler(sampling).narrow(&mut candidates);
    candidates.iter().map(|candidate| candidate.id).collect()
}

/// Probabilities 0.5, 0.25, 0.15, 0.1 at ids 2, 0, 3, 1.
fn four() -> Vec<f64> {
    [0.25, 0.1, 0.5, 0.15].map(f64::ln).to_vec()
}

#[test]
fn each_step_keeps_what_it_says() {
    let all = Sampling { temperature: 1.0, ..Sampling::GREEDY };
    assert_eq!(narrowed(all, &four()), [2, 0, 3, 1]);
    assert_eq!(narrowed(Sampling { top_k: 2, ..all }, &four()), [2, 0]);
    assert_eq!(narrowed(Sampling { top_p: 0.7, ..all }, &four()), [2, 0]);
    assert_eq!(narrowed(Sampling { top_p: 0.76, ..all }, &four()), [2, 0, 3]);
    assert_eq!(narrowed(Sampling { min_p: 0.29, ..all }, &four()), [2, 0, 3]);
    assert_eq!(narrowed(Sampling { min_p: 1.0, ..all }, &four()), [2]);
    assert_eq!(narrowed(Sampling { top_k: 3, top_p: 0.8, ..all }, &four()), [2, 0], "top-p sees what top-k left");
}

#[test]
fn greedy_takes_the_lowest_of_equals() {
    assert_eq!(sampler(Sampling::GREEDY).sample(&[1.0, 3.0, 3.0, 2.0]).unwrap(), 1);
}

#[test]
fn a_penalty_moves_recent_tokens_down() {
    let sampling = Sampling { repeat_penalty: 2.0, repeat_last: 2, ..Sampling::GREEDY };
    let sample = |prompt: &[u32], logits: &[f64]| Sampler::new(sampling, prompt).unwrap().sample(logits).unwrap();
    assert_eq!(sample(&[0], &[3.0, 2.0]), 1, "3 / 2 < 2");
    assert_eq!(sample(&[0], &[-1.0, -1.5]), 1, "-1 * 2 < -1.5");
    assert_eq!(sample(&[0, 5, 6], &[3.0, 2.0]), 0, "only two tokens are recent");
    assert_eq!(sample(&[0, 0], &[3.0, 1.0]), 0, "a token that came twice is penalized once");
}

#[test]
fn draws_follow_the_probabilities() {
    let mut sampler = sampler(Sampling { temperature: 1.0, seed: 7, ..Sampling::GREEDY });
    let mut counts = [0u32; 4];
    for _ in 0..20_000 {
        counts[sampler.sample(&four()).unwrap() as usize] += 1;
    }
    for (count, expected) in counts.iter().zip([0.25, 0.1, 0.5, 0.15]) {
        let share = f64::from(*count) / 20_000.0;
        // Four standard deviations of a share of 20,000 draws.
        assert!(
            (share - expected).abs() < 4.0 * (expected * (1.0 - expected) / 20_000f64).sqrt(),
            "{share} for {expected}"
        );
    }
}

#[test]
fn options_outside_their_range_are_refused() {
    let good = Sampling::default();
    let cases = [
        (Sampling { temperature: -1.0, ..good }, "temperature"),
        (Sampling { temperature: f64::NAN, ..good }, "temperature"),
        (Sampling { top_p: 0.0, ..good }, "top-p"),
        (Sampling { top_p: 1.1, ..good }, "top-p"),
        (Sampling { min_p: -0.1, ..good }, "min-p"),
        (Sampling { repeat_penalty: 0.0, ..good }, "penalty"),
    ];
    for (sampling, part) in cases {
        let error = Sampler::new(sampling, &[]).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert!(Sampler::new(good, &[]).is_ok());
}

#[test]
fn logits_that_are_no_numbers_are_refused() {
    for bad in [f64::NAN, f64::INFINITY] {
        let error = sampler(Sampling::GREEDY).sample(&[0.0, bad]).unwrap_err().to_string();
        assert!(error.contains("token 1"), "{error}");
    }
}

proptest! {
    #[test]
    fn what_is_drawn_remained(
        logits in proptest::collection::vec(-20.0f64..20.0, 1..50),
        top_k in 0usize..60,
        top_p in 0.01f64..1.0,
        min_p in 0.0f64..1.0,
        temperature in 0.01f64..3.0,
        seed: u64,
    ) {
        let sampling = Sampling { temperature, top_k, top_p, min_p, seed, ..Sampling::GREEDY };
        let remained = narrowed(sampling, &logits);
        prop_assert!(!remained.is_empty());
        let id = sampler(sampling).sample(&logits).unwrap();
        prop_assert!(remained.contains(&id), "{id} of {remained:?}");
        let again = sampler(sampling).sample(&logits).unwrap();
        prop_assert_eq!(id, again, "the same seed gives the same token");
    }

    #[test]
    fn a_low_temperature_is_greedy(logits in proptest::collection::vec(-20i32..20, 1..50), seed: u64) {
        let logits: Vec<f64> = logits.into_iter().map(f64::from).collect();
        let cold = Sampling { temperature: 1e-3, seed, ..Sampling::GREEDY };
        let id = sampler(cold).sample(&logits).unwrap();
        let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        prop_assert_eq!(logits[id as usize], largest);
    }
}
