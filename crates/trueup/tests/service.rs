//! Threads that ask one model at once.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;
use trueup::convert::{Options, convert};
use trueup::formats::{self, OpenOptions};
use trueup::quantize::NoProgress;
use trueup::runtime::{ContextShift, DeviceOptions, Finish, GenerateOptions, RequestId, Sampling, SessionOptions};
use trueup::{Model, OnPiece, Service};

const PROMPTS: [&str; 5] = ["Once upon a time", "Lily", "The dog and the cat went", "", "A boy saw"];

fn model() -> (TempDir, Model) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stories.gguf");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/stories-1M");
    let source = formats::open(source, &OpenOptions::default()).unwrap();
    convert(source.as_ref(), &file, &Options::default(), &NoProgress).unwrap();
    let model = Model::open(&file, "cpu", &DeviceOptions::default()).unwrap();
    (folder, model)
}

fn sequences(sequences: usize) -> SessionOptions {
    SessionOptions { sequences, ..SessionOptions::default() }
}

fn options(tokens: usize, seed: u64) -> GenerateOptions {
    let sampling = Sampling { seed, ..Sampling::default() };
    GenerateOptions { tokens_max: Some(tokens), sampling, ..GenerateOptions::default() }
}

/// A text that only others end.
fn endless() -> GenerateOptions {
    let context_shift = Some(ContextShift { keep: Some(0) });
    GenerateOptions { ignore_eos: true, tokens_max: None, context_shift, ..options(0, 1) }
}

/// What comes of a thing that must not wait for ever.
fn within_a_minute<T: Send + 'static>(thing: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, done) = mpsc::channel();
    thread::spawn(move || sender.send(thing()));
    done.recv_timeout(Duration::from_secs(60)).expect("it ends")
}

#[test]
fn threads_get_what_they_would_get_alone() {
    let (_folder, model) = model();
    let service = Service::start(&model, &sequences(3), 64).unwrap();
    thread::scope(|scope| {
        for (seed, prompt) in (0..10).zip(PROMPTS.iter().cycle()) {
            let (service, model) = (&service, &model);
            scope.spawn(move || {
                let options = options(20 + 3 * seed, seed as u64);
                let heard = Arc::new(Mutex::new((String::new(), Vec::new())));
                let hears = heard.clone();
                let on_piece: OnPiece = Box::new(move |piece| {
                    let mut heard = hears.lock().unwrap();
                    heard.0.push_str(piece.text);
                    heard.1.extend(piece.id);
                    ControlFlow::Continue(())
                });
                let id = service.submit(prompt, options.clone(), Some(on_piece)).unwrap();
                let answer = service.fetch(id).unwrap();
                let alone = model.generate(prompt, &options, &mut |_| ControlFlow::Continue(())).unwrap();
                assert_eq!(answer.text, alone, "{prompt:?} with seed {seed}");
                assert_eq!(*heard.lock().unwrap(), (alone, answer.generated.ids));
                assert!(service.fetch(id).unwrap_err().to_string().contains("was fetched or cancelled already"));
            });
        }
    });
}

#[test]
fn a_text_that_somebody_waits_for_can_be_cancelled() {
    let (_folder, model) = model();
    let service = Service::start(&model, &sequences(1), 8).unwrap();
    let (begun, has_begun) = mpsc::channel();
    let on_piece: OnPiece = Box::new(move |_| begun.send(()).map_or(ControlFlow::Break(()), ControlFlow::Continue));
    let id = service.submit("Lily", endless(), Some(on_piece)).unwrap();
    let next = service.submit("Once upon a time", options(4, 1), None).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| service.fetch(id).unwrap_err().to_string());
        has_begun.recv().unwrap();
        assert!(service.cancel(id));
        assert!(waiter.join().unwrap().contains("request 0 was fetched or cancelled already"));
    });
    assert!(!service.cancel(id));
    assert_eq!(service.fetch(next).unwrap().generated.ids.len(), 4, "its sequence is the next one's");
    let unknown = service.fetch_within(RequestId::new(7), Duration::ZERO).unwrap_err().to_string();
    assert!(unknown.contains("request 7 was never submitted"), "{unknown}");
}

#[test]
fn listeners_end_texts() {
    let (_folder, model) = model();
    let service = Service::start(&model, &sequences(2), 8).unwrap();
    let mut left = 3;
    let on_piece: OnPiece = Box::new(move |_| {
        left -= 1;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let id = service.submit("Lily", options(50, 1), Some(on_piece)).unwrap();
    let answer = service.fetch(id).unwrap();
    assert_eq!((answer.generated.finish, answer.generated.ids.len()), (Finish::Stopped, 3));
}

/// Half of the model's tokens are bytes, of which few are characters by themselves.
#[test]
fn a_text_that_is_ended_is_what_was_heard() {
    let (_folder, model) = model();
    let service = Service::start(&model, &sequences(1), 8).unwrap();
    let wild = Sampling { temperature: 9.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 1, ..Sampling::default() };
    for most in 1..40 {
        let options = GenerateOptions { sampling: wild, ignore_eos: true, ..options(100, 1) };
        let (sender, pieces) = mpsc::channel();
        let mut left = most;
        let mut hears = move |piece: &str| {
            left -= 1;
            let _ = sender.send(piece.to_owned());
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let mut other = most;
        let alone = model.generate("Lily", &options, &mut |_| {
            other -= 1;
            if other == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let id = service.submit("Lily", options, Some(Box::new(move |piece| hears(piece.text)))).unwrap();
        let answer = service.fetch(id).unwrap();
        assert_eq!(answer.generated.ids.len(), most);
        assert_eq!(answer.text, pieces.iter().collect::<String>(), "{most} tokens");
        assert_eq!(answer.text, alone.unwrap(), "{most} tokens");
    }
}

#[test]
fn a_model_has_the_context_that_is_asked_for() {
    let (_folder, model) = model();
    let model = model.with_session(SessionOptions { context: Some(9), ..SessionOptions::default() });
    assert_eq!(model.logits(&[1; 9]).unwrap().dim().0, 9);
    let error = model.logits(&[1; 10]).unwrap_err().to_string();
    assert!(error.contains("10 tokens, more than the context of 9"), "{error}");
}

#[test]
fn a_service_that_is_dropped_ends_what_runs() {
    let (_folder, model) = model();
    let service = Service::start(&model, &sequences(2), 8).unwrap();
    let (sender, ended) = mpsc::channel();
    let on_piece: OnPiece = Box::new(move |_| {
        let _ = sender.send(());
        ControlFlow::Continue(())
    });
    for _ in 0..3 {
        service.submit("Lily", endless(), None).unwrap();
    }
    service.submit("Lily", endless(), Some(on_piece)).unwrap();
    within_a_minute(move || drop(service));
    within_a_minute(move || ended.iter().for_each(drop));
}

#[test]
fn a_service_that_is_closed_tells_those_who_wait() {
    let (_folder, model) = model();
    let service = Arc::new(Service::start(&model, &sequences(2), 8).unwrap());
    let ids = [1, 2, 3].map(|_| service.submit("Lily", endless(), None).unwrap());
    let waiter = {
        let service = service.clone();
        thread::spawn(move || ids.map(|id| service.fetch(id).unwrap_err().to_string()))
    };
    service.close();
    let told = within_a_minute(move || waiter.join().unwrap());
    assert_eq!(told, ["the service was closed before generation ended"; 3]);
    assert_eq!(service.submit("Lily", endless(), None).unwrap_err().to_string(), told[0]);
}

/// Whoever holds it asks its service once more when it is dropped.
struct Parting(Arc<Service>, mpsc::Sender<bool>);

impl Drop for Parting {
    fn drop(&mut self) {
        let was_held = self.0.cancel(RequestId::new(1));
        let _ = self.1.send(was_held);
    }
}

#[test]
fn what_a_listener_holds_may_use_the_service_when_it_is_dropped() {
    for is_cancelled in [true, false] {
        let (_folder, model) = model();
        let service = Arc::new(Service::start(&model, &sequences(1), 8).unwrap());
        let (sender, told) = mpsc::channel();
        let parting = Parting(service.clone(), sender);
        let on_piece: OnPiece = Box::new(move |_| {
            let _ = &parting;
            ControlFlow::Continue(())
        });
        let text = if is_cancelled { endless() } else { options(200, 1) };
        let id = service.submit("Lily", text, Some(on_piece)).unwrap();
        service.submit("Lily", endless(), None).unwrap();
        let asked = service.clone();
        within_a_minute(move || !is_cancelled || asked.cancel(id));
        assert!(within_a_minute(move || told.recv().unwrap()), "cancelled: {is_cancelled}");
    }
}

#[test]
fn a_listener_that_panics_takes_no_waiting_thread_along() {
    let (_folder, model) = model();
    let service = Service::start(&model, &sequences(2), 8).unwrap();
    let on_piece: OnPiece = Box::new(|_| panic!("of a listener, as this test wants it"));
    let ids = [
        service.submit("Lily", options(50, 1), None).unwrap(),
        service.submit("Lily", options(50, 1), Some(on_piece)).unwrap(),
    ];
    let service = Arc::new(service);
    let fetched = |id| {
        let service = service.clone();
        within_a_minute(move || service.fetch(id)).unwrap_err().to_string()
    };
    for id in ids {
        let error = fetched(id);
        assert!(error.contains("was not finished") || error.contains("has ended"), "{error}");
    }
    // The thread may still be ending.
    let later = service.submit("Lily", options(1, 1), None);
    let refused = later.map_or_else(|refused| refused.to_string(), fetched);
    assert_eq!(refused, "the thread that computes requests has ended");
}
