//! Requests that come, go and are cancelled while others are computed: each gives what it gives alone, bit for bit.

use super::{device, model, session, tiny_model};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use trueup_blocks::DType;
use trueup_runtime::device::{Decorator, Device, Step};
use trueup_runtime::{
    ContextShift, Error, Finish, GenerateOptions, Generated, ModelFile, RequestId, Requests, Result, Runner, Sampling,
    Session, SessionOptions, Watch, generate,
};

/// Numbers that look random and are the same every time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    /// A prompt with options of its own.
    fn request(&mut self) -> (Vec<u32>, GenerateOptions) {
        let prompt = (0..1 + self.below(60)).map(|_| self.below(tiny_model::VOCABULARY) as u32).collect();
        let sampling = Sampling { seed: self.below(1000) as u64, ..Sampling::default() };
        let options = GenerateOptions {
            tokens_max: Some(self.below(24)),
            ignore_eos: self.below(2) == 0,
            sampling: if self.below(3) == 0 { Sampling::GREEDY } else { sampling },
            keep_logits: self.below(2) == 0,
            reuse: self.below(2) == 0,
            context_shift: (self.below(2) == 0).then_some(ContextShift { keep: Some(1) }),
        };
        (prompt, options)
    }
}

fn sized(sequences: usize, prompt_chunk: usize) -> SessionOptions {
    SessionOptions { context: Some(70), sequences, prompt_chunk, ..SessionOptions::default() }
}

/// Someone who only listens.
#[derive(Default)]
struct Heard {
    tokens: HashMap<usize, Vec<u32>>,
    ended: Vec<usize>,
}

impl Watch for Heard {
    fn saw_token(&mut self, prompt: usize, id: u32) -> ControlFlow<()> {
        assert!(!self.ended.contains(&prompt));
        self.tokens.entry(prompt).or_default().push(id);
        ControlFlow::Continue(())
    }

    fn ended(&mut self, prompt: usize) {
        assert!(!self.ended.contains(&prompt));
        self.ended.push(prompt);
    }
}

fn alone(model: &Arc<ModelFile>, prompt: &[u32], options: &GenerateOptions) -> Generated {
    let mut session = session(model, device("cpu"), sized(1, 512));
    let mut results =
        generate(&mut session, &[prompt.to_vec()], options, &mut |_, _| ControlFlow::Continue(())).unwrap();
    results.remove(0)
}

/// Everything but the time it took.
fn timeless(generated: Generated) -> Generated {
    Generated { prompt_ms: 0.0, decode_ms: 0.0, ..generated }
}

#[test]
fn whatever_comes_and_goes_each_request_gives_what_it_gives_alone() {
    let (_folder, model) = model(DType::Q8_0, false);
    for (seed, sequences, chunk) in [(1, 1, 16), (2, 3, 8), (3, 4, 512), (4, 5, 2)] {
        let mut numbers = Numbers(seed);
        let mut session = session(&model, device("cpu"), sized(sequences, chunk));
        let requests = Requests::new(&session, 100);
        let mut runner = Runner::new(&requests, &mut session);
        let mut heard = Heard::default();
        let mut asked = HashMap::new();
        let mut cancelled = Vec::new();
        for _ in 0..60 {
            if numbers.below(3) == 0 && asked.len() < 14 {
                let (prompt, options) = numbers.request();
                let id = requests.submit(prompt.clone(), options.clone()).unwrap();
                asked.insert(id, (prompt, options));
            }
            if numbers.below(8) == 0 && !asked.is_empty() {
                let id = RequestId::new(numbers.below(asked.len()));
                assert_eq!(requests.cancel(id), !cancelled.contains(&id), "seed {seed}");
                cancelled.push(id);
            }
            runner.step(&mut heard).unwrap();
        }
        while runner.step(&mut heard).unwrap() {}
        assert!(cancelled.len() > 1 && asked.len() > 7, "seed {seed}");
        for (id, (prompt, options)) in asked {
            let result = requests.poll(id);
            if cancelled.contains(&id) {
                assert!(result.unwrap_err().to_string().contains("was fetched or cancelled already"));
                continue;
            }
            let result = result.unwrap().expect("all are finished");
            let tokens = heard.tokens.remove(&id.number()).unwrap_or_default();
            assert_eq!(tokens, result.ids, "seed {seed}, {id:?}");
            assert_eq!(timeless(result), timeless(alone(&model, &prompt, &options)), "seed {seed}, {id:?}");
        }
        assert_eq!(requests.held(), 0, "nothing is kept of what was fetched or cancelled");
    }
}

#[test]
fn a_text_goes_on_while_a_long_prompt_joins() {
    let (_folder, model) = model(DType::F32, false);
    let mut session = session(&model, device("cpu"), sized(2, 8));
    let requests = Requests::new(&session, 2);
    let mut runner = Runner::new(&requests, &mut session);
    let options = GenerateOptions { tokens_max: Some(40), ignore_eos: true, ..GenerateOptions::default() };
    let mut heard = Heard::default();
    requests.submit(vec![1, 2], options.clone()).unwrap();
    runner.step(&mut heard).unwrap();
    requests.submit((0..42).collect(), options).unwrap();
    for step in 1..=6 {
        assert!(!heard.tokens.contains_key(&1), "seven tokens of the prompt at each step");
        runner.step(&mut heard).unwrap();
        assert_eq!(heard.tokens[&0].len(), 1 + step, "a token at each step");
    }
    assert_eq!(heard.tokens[&1].len(), 1);
}

fn greedy(tokens: usize) -> GenerateOptions {
    GenerateOptions { tokens_max: Some(tokens), sampling: Sampling::GREEDY, ..GenerateOptions::default() }
}

#[test]
fn what_does_not_fit_is_its_own_error() {
    let (_folder, model) = model(DType::F32, false);
    let mut session = session(&model, device("cpu"), sized(1, 512));
    let requests = Requests::new(&session, 3);
    let shift = GenerateOptions { context_shift: Some(ContextShift { keep: None }), ..greedy(2) };
    let cases = [
        (vec![], greedy(2), "has no tokens"),
        (vec![1; 71], greedy(2), "71 tokens, more than the context of 70"),
        (vec![tiny_model::VOCABULARY as u32], greedy(2), "expected token IDs from 0 to 47, found 48"),
        (vec![1; 70], shift, "leave no space in a context of 70"),
        (vec![1], GenerateOptions { sampling: Sampling { top_p: f64::NAN, ..Sampling::GREEDY }, ..greedy(2) }, "top-p"),
    ];
    for (prompt, options, part) in cases {
        let error = requests.submit(prompt, options).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let ids = [requests.submit(vec![1], greedy(2)).unwrap(), requests.submit(vec![1, 2], greedy(2)).unwrap()];
    assert_eq!(ids.map(RequestId::number), [0, 1], "what was refused has no number");
    let mut runner = Runner::new(&requests, &mut session);
    while runner.step(&mut Heard::default()).unwrap() {}
    assert_eq!(requests.poll(ids[0]).unwrap().unwrap().ids.len(), 2);
    for (id, part) in [(ids[0], "fetched or cancelled already"), (RequestId::new(2), "was never submitted")] {
        let error = requests.poll(id).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains(&id.number().to_string()), "{error}");
        assert!(!requests.cancel(id));
    }
    assert!(requests.poll(ids[1]).unwrap().is_some(), "the others know nothing of it");
}

#[test]
fn a_million_requests_take_the_memory_of_those_that_are_held() {
    let (_folder, model) = model(DType::F32, false);
    let session = session(&model, device("cpu"), sized(1, 512));
    let requests = Requests::new(&session, 5);
    let mut taken = 0;
    for _ in 0..1_000_000 {
        match requests.submit(vec![1], greedy(1)) {
            Ok(_) => taken += 1,
            Err(error) => {
                assert!(error.to_string().contains("5 requests already waiting, running or not fetched"), "{error}")
            }
        }
    }
    assert_eq!((taken, requests.held()), (5, 5));
    assert!(requests.cancel(RequestId::new(3)));
    assert_eq!(requests.submit(vec![1], greedy(1)).unwrap().number(), 5, "there is room for one again");
}

#[test]
fn what_was_begun_ends_with_its_runner() {
    let (_folder, model) = model(DType::F32, false);
    let mut session = session(&model, device("cpu"), sized(1, 512));
    let requests = Requests::new(&session, 5);
    let begun = requests.submit(vec![1], greedy(9)).unwrap();
    let waiting = requests.submit(vec![2], greedy(1)).unwrap();
    Runner::new(&requests, &mut session).step(&mut Heard::default()).unwrap();
    assert!(requests.poll(begun).unwrap_err().to_string().contains("request 0 was not finished"));
    assert!(requests.fetch_within(waiting, Duration::from_millis(5)).unwrap().is_none());
    let mut runner = Runner::new(&requests, &mut session);
    while runner.step(&mut Heard::default()).unwrap() {}
    assert_eq!(requests.poll(waiting).unwrap().unwrap().ids.len(), 1, "another goes on");
    let last = requests.submit(vec![1], greedy(1)).unwrap();
    requests.close("enough");
    assert_eq!(requests.poll(last).unwrap_err().to_string(), "enough");
    assert_eq!(requests.submit(vec![1], greedy(1)).unwrap_err().to_string(), "enough");
    assert!(!requests.wait_for_work());
}

/// Threads that submit while the list is closed: what was taken has ended, and waits for nobody.
#[test]
fn what_is_submitted_while_a_list_closes_is_told() {
    let (_folder, model) = model(DType::F32, false);
    let session = session(&model, device("cpu"), sized(1, 512));
    for round in 0..300 {
        let requests = Requests::new(&session, usize::MAX);
        let submit = || std::iter::repeat_with(|| requests.submit(vec![1], greedy(1))).map_while(|taken| taken.ok());
        let taken = std::thread::scope(|scope| {
            let threads = [(); 3].map(|()| scope.spawn(|| submit().collect::<Vec<RequestId>>()));
            std::thread::sleep(Duration::from_micros(100));
            requests.close("enough");
            threads.map(|thread| thread.join().unwrap()).concat()
        });
        for id in taken {
            let told = requests.poll(id).map(|result| result.map(|result| result.ids));
            assert_eq!(told.unwrap_err().to_string(), "enough", "round {round}, {id:?}");
        }
    }
}

/// The processor, which fails for batches of seven tokens.
struct Failing(Arc<dyn Device>);

impl Decorator for Failing {
    fn device(&self) -> &dyn Device {
        &*self.0
    }

    fn execute(&self, steps: &[Step]) -> Result<()> {
        if steps.iter().any(|step| step.output.ty.shape.rows() == 7) {
            return Err(Error::Device { device: "cpu".to_owned(), problem: "is on fire".to_owned() });
        }
        self.0.execute(steps)
    }
}

#[test]
fn a_failing_device_ends_all_requests_in_its_words() {
    let (_folder, model) = model(DType::F32, false);
    let mut session = session(&model, Arc::new(Failing(device("cpu"))), sized(2, 512));
    let requests = Requests::new(&session, 5);
    let mut runner = Runner::new(&requests, &mut session);
    let mut heard = Heard::default();
    let running = requests.submit(vec![1, 2], greedy(9)).unwrap();
    runner.step(&mut heard).unwrap();
    let ids = [running, requests.submit(vec![1; 6], greedy(9)).unwrap(), requests.submit(vec![1], greedy(2)).unwrap()];
    let error = runner.step(&mut heard).unwrap_err().to_string();
    assert_eq!(error, "device cpu: is on fire");
    for id in ids {
        assert_eq!(requests.poll(id).unwrap_err().to_string(), error);
        assert!(heard.ended.contains(&id.number()));
    }
    let later = requests.submit(vec![1, 5], greedy(3)).unwrap();
    while runner.step(&mut heard).unwrap() {}
    let result = requests.poll(later).unwrap().unwrap();
    assert_eq!((result.finish, result.ids), (Finish::Length, alone(&model, &[1, 5], &greedy(3)).ids));
}

#[test]
fn sessions_can_go_to_other_threads() {
    fn is_sendable<T: Send>() {}
    fn is_shared<T: Send + Sync>() {}
    is_sendable::<Session>();
    is_shared::<Requests>();
}
