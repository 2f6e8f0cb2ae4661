//! Weights that stay where their file is mapped, by choice or for want of memory: the same bits.

use super::*;
use std::sync::atomic::{AtomicU64, Ordering};
use trueup_graph::Origin;
use trueup_runtime::device::{Buffer, Usage};
use trueup_runtime::{Error, HeldWeights};

/// The processor with so much memory free.
struct Free {
    device: Arc<dyn Device>,
    bytes: u64,
}

impl Decorator for Free {
    fn device(&self) -> &dyn Device {
        &*self.device
    }

    fn about(&self) -> About {
        About { memory: Some((1 << 40, self.bytes)), ..self.device.about() }
    }
}

fn cpu(repack: bool) -> Arc<dyn Device> {
    open_device("cpu", &DeviceOptions { threads: Some(2), repack, ..DeviceOptions::default() }).unwrap()
}

/// Bits of the logits of all prompts, and how the weights are held.
fn computed(model: &Arc<ModelFile>, device: Arc<dyn Device>) -> (Vec<Vec<u64>>, HeldWeights) {
    let options = SessionOptions { sequences: 4, ..SessionOptions::default() };
    let mut session = session(model, device, options);
    let bits = bits(&mut session, &entries(&prompts()));
    let held = session.weights().held();
    (bits, held)
}

/// Bytes of the tensors whose names begin so, and of the vectors among them.
fn bytes(model: &ModelFile, prefix: &str) -> (u64, u64) {
    let all = model.tensors().iter().filter(|tensor| tensor.name.starts_with(prefix));
    all.fold((0, 0), |(all, vectors), tensor| {
        (all + tensor.bytes, vectors + if tensor.shape.len() == 1 { tensor.bytes } else { 0 })
    })
}

/// Bytes of all that is no weight and is needed at once, and of what a prompt needs beyond that.
fn others(model: &Arc<ModelFile>) -> u64 {
    let weights = Weights::new(model.clone(), cpu(true), None);
    let options = SessionOptions { sequences: 4, ..SessionOptions::default() };
    let plan = Session::plan(&weights, &options, 1, 1, 1).unwrap();
    let graph = plan.graph();
    let held = plan.held(0).map(|id| graph.value(id)).filter(|value| value.origin != Origin::Weight);
    let largest = Session::plan(&weights, &options, 512, 1, tiny_model::CONTEXT).unwrap();
    held.map(|value| value.ty.bytes() as u64).sum::<u64>() + (largest.arena_bytes(0) + largest.scratch_bytes(0)) as u64
}

#[test]
fn without_repacking_matrices_stay_in_the_file() {
    for dtype in DTYPES.into_iter().chain([DType::Q4_1, DType::Q5_0, DType::Q5_1]) {
        let (folder, model) = model(dtype, false);
        let (all, vectors) = bytes(&model, "");
        let (expected, copied) = computed(&model, cpu(true));
        assert_eq!(copied, HeldWeights { copied_bytes: all, mapped_bytes: 0, crowded_out_bytes: 0 }, "{dtype}");
        let (found, held) = computed(&model, cpu(false));
        assert_eq!(
            held,
            HeldWeights { copied_bytes: vectors, mapped_bytes: all - vectors, crowded_out_bytes: 0 },
            "{dtype}"
        );
        assert!(found == expected, "{dtype}");
        let options = SessionOptions { sequences: 4, ..SessionOptions::default() };
        let mut session = session(&model, cpu(false), options);
        drop((folder, model));
        assert!(bits(&mut session, &entries(&prompts())) == expected, "{dtype}: the map holds a file that is gone");
    }
}

#[test]
fn an_embedding_of_which_rows_are_taken_alone_stays_in_the_file() {
    for dtype in DTYPES.into_iter().chain([DType::Bf16]) {
        let (_folder, model) = model_of(Kind::Wide, tiny_model::CONTEXT, dtype);
        let ((table, _), (all, vectors)) = (bytes(&model, "token_embd"), bytes(&model, ""));
        let (expected, held) = computed(&model, cpu(false));
        assert_eq!(held.mapped_bytes, all - vectors);
        let (found, held) = computed(&model, cpu(true));
        let copied = HeldWeights { copied_bytes: all - table, mapped_bytes: table, crowded_out_bytes: 0 };
        assert_eq!(held, copied, "{dtype}: memory is free, and rows that nobody asks for take none");
        assert!(found == expected, "{dtype}");
    }
}

/// Free memory grows from what is needed beside weights on: more and more layers are copied, each as a whole.
#[test]
fn layers_beyond_the_free_memory_stay_in_the_file() {
    for dtype in [DType::F16, DType::Q4_0, DType::Q8_0] {
        let (_folder, model) = model(dtype, false);
        let (all, vectors) = bytes(&model, "");
        let (layer, layer_vectors) = bytes(&model, "blk.0.");
        let (table, _) = bytes(&model, "token_embd");
        let expected = computed(&model, cpu(true)).0;
        let others = others(&model);
        // The table comes first; then both layers, of the same size, and a norm.
        for (room, mapped) in [
            (table - 1, 2 * (layer - layer_vectors)),
            (table, 2 * (layer - layer_vectors)),
            (table + layer - 1, 2 * (layer - layer_vectors)),
            (table + layer, layer - layer_vectors),
            (table + 2 * layer - 1, layer - layer_vectors),
            (table + 2 * layer, 0),
        ] {
            // A sixteenth of what is free is left to others.
            let wanted = others + room;
            let free = (wanted..).find(|free| free - free / 16 == wanted).unwrap();
            let (found, held) = computed(&model, Arc::new(Free { device: cpu(true), bytes: free }));
            let mapped = if room < table { mapped + table } else { mapped };
            let what = format!("{dtype}: {free} bytes free, {room} for weights, layers of {layer}, vectors {vectors}");
            assert_eq!((held.mapped_bytes, held.crowded_out_bytes), (mapped, mapped), "{what}");
            assert_eq!(held.copied_bytes, all - mapped, "{what}");
            assert!(found == expected, "{what}");
        }
    }
}

/// The processor, which has no memory for matrices and does not say so before.
struct Surprised(Arc<dyn Device>);

impl Decorator for Surprised {
    fn device(&self) -> &dyn Device {
        &*self.0
    }

    fn alloc(&self, ty: &TensorType, usage: Usage) -> Result<Buffer> {
        if usage == Usage::Weight && ty.shape.rows() > 1 {
            return Err(Error::Device { device: "cpu".to_owned(), problem: "no memory".to_owned() });
        }
        self.0.alloc(ty, usage)
    }
}

#[test]
fn a_weight_for_which_memory_is_refused_stays_in_the_file() {
    let (_folder, model) = model(DType::Q8_0, false);
    let (all, vectors) = bytes(&model, "");
    let expected = computed(&model, cpu(true)).0;
    let (found, held) = computed(&model, Arc::new(Surprised(cpu(true))));
    let mapped = all - vectors;
    assert_eq!(held, HeldWeights { copied_bytes: vectors, mapped_bytes: mapped, crowded_out_bytes: mapped });
    assert!(found == expected);
}

/// What a session that found no room would have left in the file is copied by a smaller one.
#[test]
fn a_session_that_is_refused_leaves_nothing_mapped() {
    let (_folder, model) = model(DType::Q4_0, false);
    let free = Free { device: cpu(true), bytes: others(&model) + (1 << 22) };
    let weights = Arc::new(Weights::new(model.clone(), Arc::new(free), None));
    let large = SessionOptions { sequences: 4000, ..SessionOptions::default() };
    let error = Session::new(weights.clone(), &large).err().unwrap().to_string();
    assert!(error.contains("reduce the context (-c)"), "{error}");
    assert_eq!(weights.held(), HeldWeights::default());
    let options = SessionOptions { sequences: 4, ..SessionOptions::default() };
    let mut session = Session::new(weights, &options).unwrap();
    bits(&mut session, &entries(&prompts()));
    assert_eq!(session.weights().held().mapped_bytes, 0);
}

/// A device whose memory others take.
struct Taken {
    device: Arc<dyn Device>,
    free: AtomicU64,
}

impl Decorator for Taken {
    fn device(&self) -> &dyn Device {
        &*self.device
    }

    fn about(&self) -> About {
        About { memory: Some((1 << 40, self.free.load(Ordering::Relaxed))), ..self.device.about() }
    }
}

/// One token behind more and more takes no larger arena, but more room that attention keeps by itself.
#[test]
fn room_that_a_device_takes_by_itself_is_looked_for_when_it_grows() {
    let (_folder, model) = model(DType::Q8_0, false);
    let taken = Arc::new(Taken { device: cpu(true), free: AtomicU64::new(1 << 40) });
    let weights = Arc::new(Weights::new(model, taken.clone(), None));
    let options = SessionOptions::default();
    let plan = |len| Session::plan(&weights, &options, 1, 1, len).unwrap();
    let (short, long) = (plan(1), plan(tiny_model::CONTEXT));
    assert_eq!(short.arena_bytes(0), long.arena_bytes(0));
    assert!(short.scratch_bytes(0) < long.scratch_bytes(0));
    let mut session = Session::new(weights.clone(), &options).unwrap();
    let mut decode = || session.compute(&[Entry { token: 3, sequence: 0, wants_logits: true }], None).map(drop);
    decode().unwrap();
    taken.free.store(0, Ordering::Relaxed);
    let refused = (1..tiny_model::CONTEXT).find_map(|_| decode().err());
    let refused = refused.expect("no room for the scores of the longest row").to_string();
    assert!(refused.contains("reduce the context (-c)"), "{refused}");
}

/// Parts of the split-scale layout are joined in memory, and stay in no file.
#[test]
fn the_split_scale_layout_is_copied() {
    let (_folder, model) = model(DType::Q8_0, true);
    let (expected, held) = computed(&model, cpu(true));
    assert_eq!(held.mapped_bytes, 0);
    let (found, held) = computed(&model, cpu(false));
    assert!(found == expected && held.mapped_bytes == 0);
}
