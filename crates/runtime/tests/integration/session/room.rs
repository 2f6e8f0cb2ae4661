//! What there is no room for is refused with a sentence, before anything is allocated or computed.

use super::tiny_model::{CONTEXT, Kind, VOCABULARY};
use super::{device, entries, model, model_of, prompts};
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_formats::gguf::MappedBytes;
use trueup_graph::TensorType;
use trueup_runtime::device::{About, Buffer, CopyRoom, Decorator, Device};
use trueup_runtime::{DeviceOptions, Result, Session, SessionOptions, Weights, open_device};

/// The processor, of which little memory is free, and which reads no weights where they are mapped.
struct Small {
    inner: Arc<dyn Device>,
    free: u64,
}

impl Decorator for Small {
    fn device(&self) -> &dyn Device {
        &*self.inner
    }

    fn about(&self) -> About {
        About { memory: Some((1 << 40, self.free)), ..self.inner.about() }
    }

    fn adopt(&self, _: &MappedBytes, _: &TensorType, _: CopyRoom) -> Result<Option<Buffer>> {
        Ok(None)
    }
}

fn weights(kind: Kind, context: usize, name: &str) -> (tempfile::TempDir, Arc<Weights>) {
    let (folder, model) = model_of(kind, context, DType::F32);
    (folder, Arc::new(Weights::new(model, device(name), None)))
}

#[test]
fn a_session_beyond_the_memory_is_refused() {
    let (_folder, model) = model(DType::F32, false);
    // Scores that lie in memory make a larger batch large.
    let options = SessionOptions { fusion: false, ..SessionOptions::default() };
    let of = |free| {
        let small = Small { inner: device("cpu"), free };
        Session::new(Arc::new(Weights::new(model.clone(), Arc::new(small), None)), &options)
    };
    let error = of(100_000).err().unwrap().to_string();
    assert!(
        error.contains("bytes of memory, but only 100000 are available") && error.contains("reduce the context (-c)"),
        "{error}"
    );
    let plan = Session::plan(of(u64::MAX).unwrap().weights(), &options, 1, 1, 1).unwrap();
    let device = &plan.report().devices[0];
    let needed = device.weight_bytes + device.kv_bytes + device.input_bytes + device.arena_bytes;
    assert!(of(needed as u64 - 1).is_err(), "one byte is missing");
    // A larger batch needs more room for intermediate results, which is then not there.
    let mut session = of(needed as u64).unwrap();
    let error = session.compute(&entries(&prompts()[1..2]), None).unwrap_err().to_string();
    assert!(error.contains("are available") && session.is_empty(0), "{error}");
}

/// The largest cache that indices allow, of a model that claims as large a context.
#[test]
fn batches_beyond_any_memory_are_refused() {
    for name in ["ref", "cpu"] {
        let context = (1 << 31) - 64;
        let (_folder, weights) = weights(Kind::Llama, context, name);
        let options = SessionOptions { context: Some(context), kv: Some(DType::F32), ..SessionOptions::default() };
        let plan = Session::plan(&weights, &options, 1, 1, 1).unwrap();
        assert_eq!(plan.report().devices[0].kv_bytes_max, 2 * 2 * 4 * 32 * context);
        for tokens in [1 << 20, context] {
            let error = Session::plan(&weights, &options, tokens, 1, context).unwrap_err().to_string();
            assert!(error.contains("more than any machine has"), "{error}");
        }
    }
}

/// The embedding stays in the file, of which rows are looked up, and with `repack` off all matrices do.
#[test]
fn weights_that_stay_in_the_file_take_no_memory() {
    let (_folder, model) = model_of(Kind::Wide, CONTEXT, DType::F32);
    for repack in [true, false] {
        let options = DeviceOptions { threads: Some(1), repack, ..DeviceOptions::default() };
        let weights = Weights::new(model.clone(), open_device("cpu", &options).unwrap(), None);
        let plan = Session::plan(&weights, &SessionOptions::default(), 1, 1, 1).unwrap();
        let all = plan.report().devices[0].weight_bytes as u64;
        assert_eq!(Weights::stored_bytes(&[&plan, &plan], 0), all);
        assert_eq!(weights.copied_bytes(&[&plan, &plan], 0).unwrap(), weights.copied_bytes(&[&plan], 0).unwrap());
        let copied = weights.copied_bytes(&[&plan], 0).unwrap();
        let session = Session::new(Arc::new(weights), &SessionOptions::default()).unwrap();
        let held = session.weights().held();
        assert_eq!((copied, all - copied), (held.copied_bytes, held.mapped_bytes), "repack {repack}");
        assert!(copied < if repack { all } else { all / 20 }, "{copied} of {all}");
    }
}

#[test]
fn logits_are_computed_behind_the_tokens_that_want_them_alone() {
    let (_folder, weights) = weights(Kind::Llama, CONTEXT, "cpu");
    for (tokens, outputs) in [(1, 1), (100, 1), (100, 3)] {
        let plan = Session::plan(&weights, &SessionOptions::default(), tokens, outputs, tokens).unwrap();
        let logits = plan.graph().nodes().last().map(|node| plan.graph().value(node.output).ty.shape.sizes());
        assert_eq!(logits, Some([VOCABULARY, outputs, 1, 1]), "{tokens} tokens");
    }
}

#[test]
fn plans_of_batches_that_cannot_be_say_why() {
    let (_folder, weights) = weights(Kind::Llama, CONTEXT, "cpu");
    let options = SessionOptions { sequences: 2, ..SessionOptions::default() };
    let most = usize::MAX;
    for (tokens, outputs, length, part) in [
        (1, 1, most, "exceeds the context of 160"),
        (1, 1, 161, "exceeds the context of 160"),
        (most, 1, 1, "a batch of 1 to 320 tokens"),
        (321, 1, 160, "a batch of 1 to 320 tokens"),
        (0, 0, 1, "a batch of 1 to 320 tokens"),
        (3, 4, 3, "logits of 4 tokens"),
        (3, 0, 3, "logits of 0 tokens"),
    ] {
        let error = Session::plan(&weights, &options, tokens, outputs, length).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert!(Session::plan(&weights, &options, 320, 320, 160).is_ok());
}

#[test]
fn contexts_whose_rows_cannot_be_counted_are_refused() {
    let (_folder, weights) = weights(Kind::Llama, i32::MAX as usize, "cpu");
    for (context, sequences, part) in [
        (2_147_483_647, 1, "expected a context of 1 to 2147483584 tokens, found 2147483647"),
        (1_073_741_800, 2, "2 sequences of 1073741824 tokens (the context, in steps of 64) exceed 2147483584 tokens"),
    ] {
        let options = SessionOptions { context: Some(context), sequences, ..SessionOptions::default() };
        let error = Session::plan(&weights, &options, 1, 1, 1).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let options = SessionOptions { context: Some(2_147_483_584), ..SessionOptions::default() };
    assert!(Session::plan(&weights, &options, 1, 1, 1).is_ok());
}
