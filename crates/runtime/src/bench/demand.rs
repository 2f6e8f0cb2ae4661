//! What a phase must read and multiply at least, from the plans of its batches.

use crate::error::Result;
use crate::plan::Plan;
use crate::roof::{Operations, Roof};
use crate::session::{Session, SessionOptions};
use crate::weights::Weights;
use crate::work::Work;
use trueup_graph::{Graph, Node, Op, Origin, StateKind, TensorType, Value};

/// Of one or several batches.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Demand {
    /// Weights, once for each batch; of an embedding the rows that are taken.
    pub weight_bytes: u64,
    /// The KV cache of the positions that the tokens of each batch see.
    pub kv_bytes: u64,
    /// Products of weights and activations, by what they are computed in.
    pub operations: Operations,
    /// The type of the KV cache.
    pub kv: &'static str,
    batches: Vec<Batch>,
}

/// What one batch demands.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Batch {
    bytes: u64,
    operations: Operations,
}

impl Demand {
    /// Of a prompt of so many tokens with logits behind its end, in the chunks of the session.
    pub fn of_prompt(weights: &Weights, options: &SessionOptions, tokens: usize) -> Result<Demand> {
        let chunk = options.prompt_chunk.max(1);
        let ends = (0..tokens).step_by(chunk).map(|start| (start, (start + chunk).min(tokens)));
        let batches = ends.map(|(start, end)| {
            let plan = Session::plan(weights, options, end - start, 1, end)?;
            Ok(Demand::of_batch(&plan, end as u64, in_window(weights, end, end - start)))
        });
        batches.collect::<Result<Vec<Demand>>>().map(Demand::sum)
    }

    /// Of so many tokens, one by one, behind a prompt.
    pub fn of_decode(weights: &Weights, options: &SessionOptions, prompt: usize, tokens: usize) -> Result<Demand> {
        let plan = Session::plan(weights, options, 1, 1, prompt + tokens)?;
        let of_token = |end: usize| Demand::of_batch(&plan, end as u64, in_window(weights, end, 1));
        Ok(Demand::sum((prompt + 1..=prompt + tokens).map(of_token).collect()))
    }

    /// Of one batch whose sequences hold `positions` tokens at its end, all together. Layers with a sliding window read
    /// `in_window` of them.
    pub fn of_batch(plan: &Plan, positions: u64, in_window: u64) -> Demand {
        let graph = plan.graph();
        let (mut weight_bytes, mut operations) = (0, Operations::default());
        for (node, planned) in graph.nodes().iter().zip(plan.nodes()) {
            let weights = weights_of(graph, node);
            weight_bytes += weights.iter().map(|ty| read_bytes(node, ty, graph)).sum::<u64>();
            if !weights.is_empty() {
                operations += Operations::of(&planned.profile, work_of(graph, node).operations);
            }
        }
        let row_bytes = |ty: &TensorType| (ty.bytes() / ty.shape.rows().max(1)) as u64;
        // A cache is read up to the last position, a recurrent state once.
        let rows = |value: &Value| match value.origin {
            Origin::State(StateKind::Rows) => Some(positions),
            Origin::State(StateKind::Ring) => Some(in_window),
            Origin::State(StateKind::Recurrent) => Some(1),
            Origin::Input(_) | Origin::Weight | Origin::Node(_) => None,
        };
        let states = || graph.values().iter().filter_map(|value| Some((value.ty, rows(value)?)));
        let kv_bytes = states().map(|(ty, rows)| rows * row_bytes(&ty)).sum::<u64>();
        let kv = states().next().map_or("none", |(ty, _)| ty.dtype.name());
        let batches = vec![Batch { bytes: weight_bytes + kv_bytes, operations }];
        Demand { weight_bytes, kv_bytes, operations, kv, batches }
    }

    fn sum(all: Vec<Demand>) -> Demand {
        Demand {
            weight_bytes: all.iter().map(|demand| demand.weight_bytes).sum(),
            kv_bytes: all.iter().map(|demand| demand.kv_bytes).sum(),
            operations: all.iter().fold(Operations::default(), |sum, demand| sum + demand.operations),
            kv: all.first().map_or("none", |demand| demand.kv),
            batches: all.into_iter().flat_map(|demand| demand.batches).collect(),
        }
    }

    /// All bytes that must be read.
    pub fn bytes(&self) -> u64 {
        self.weight_bytes + self.kv_bytes
    }

    /// The least time that a roof allows: each batch is limited by what takes longer, reading or multiplying.
    pub fn seconds(&self, roof: &Roof) -> f64 {
        self.batches.iter().map(|batch| roof.reading_seconds(batch.bytes, batch.operations)).sum()
    }
}

/// Positions that a layer with a sliding window reads for the last `tokens` of `end` tokens; all without a window.
pub(super) fn in_window(weights: &Weights, end: usize, tokens: usize) -> u64 {
    let window = weights.model().model().spec().window();
    window.map_or(end, |window| end.min(window.saturating_add(tokens) - 1)) as u64
}

/// The weights that a node reads.
pub(super) fn weights_of(graph: &Graph, node: &Node) -> Vec<TensorType> {
    let values = node.inputs.iter().map(|input| graph.value(*input));
    values.filter(|value| value.origin == Origin::Weight).map(|value| value.ty).collect()
}

/// What a node with weights moves and computes.
fn work_of(graph: &Graph, node: &Node) -> Work {
    let types: Vec<TensorType> = node.inputs.iter().map(|input| graph.value(*input).ty).collect();
    Work::of(&node.op, &types, &graph.value(node.output).ty)
}

/// Bytes of a weight that a node reads: of a table only the rows that it takes, of a stack of experts only those that
/// tokens use.
fn read_bytes(node: &Node, weight: &TensorType, graph: &Graph) -> u64 {
    match node.op {
        Op::GetRows(_) => {
            let rows = graph.value(node.output).ty.shape.rows().min(weight.shape.rows());
            (weight.bytes() / weight.shape.rows().max(1) * rows) as u64
        }
        Op::MulMatId(_) => {
            let [_, used, tokens, _] = graph.value(node.output).ty.shape.sizes();
            let experts = weight.shape[2].max(1);
            (weight.bytes() as f64 / experts as f64 * experts_used(experts, used, tokens)).round() as u64
        }
        _ => weight.bytes() as u64,
    }
}

/// How many experts the tokens of a batch use together, on average, if a router prefers none: each token uses `used`
/// different ones.
fn experts_used(experts: usize, used: usize, tokens: usize) -> f64 {
    let share = used as f64 / experts as f64;
    experts as f64 * (1.0 - (1.0 - share.min(1.0)).powf(tokens as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::{DeviceOptions, open_device};
    use crate::model_file::ModelFile;
    use std::path::Path;
    use std::sync::Arc;
    use trueup_blocks::DType;
    use trueup_formats::TensorInfo;
    use trueup_formats::gguf::Metadata;
    use trueup_models::{Architecture, ModelSpec};

    /// Two layers of 64 wide rows, 2 heads of 32 sharing one of keys and values, a feed-forward of 96, 128 tokens, a
    /// tied head; q8_0.
    fn weights() -> Weights {
        let config = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
            "num_key_value_heads": 1, "intermediate_size": 96, "vocab_size": 128, "tie_word_embeddings": true}"#;
        let (config, path) = (serde_json::from_str(config).unwrap(), Path::new("made"));
        let architecture = Architecture::of_config(&config, path).unwrap();
        let spec = ModelSpec::from_config(architecture, &config, 100, path).unwrap();
        let mut metadata = Metadata::default();
        spec.write_metadata(&mut metadata);
        let dtype = |shape: &[u64]| if shape.len() == 1 { DType::F32 } else { DType::Q8_0 };
        let expected = spec.tensors().into_iter();
        let tensors = expected.map(|tensor| TensorInfo::new(tensor.name, &tensor.shape, dtype(&tensor.shape)).unwrap());
        let zeros = |tensor: &TensorInfo| vec![0; tensor.bytes as usize];
        let model = ModelFile::made(path, metadata, tensors.collect(), Box::new(zeros)).unwrap();
        let options = DeviceOptions { threads: Some(1), ..DeviceOptions::default() };
        Weights::new(Arc::new(model), open_device("cpu", &options).unwrap(), None)
    }

    /// Weights of the layers: query and output, key and value, three of the feed-forward; and of the head.
    const LAYERS: u64 = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96);
    const HEAD: u64 = 64 * 128;

    #[test]
    fn a_token_reads_all_weights_once_one_row_of_the_embedding_and_the_cache_behind_it() {
        let options = SessionOptions { context: Some(100), ..SessionOptions::default() };
        let demand = Demand::of_decode(&weights(), &options, 70, 3).unwrap();
        let norms = 5 * 64 * 4;
        assert_eq!(demand.weight_bytes, 3 * ((LAYERS + HEAD + 64) / 32 * 34 + norms));
        // Keys and values of two layers, 32 f16 each.
        assert_eq!(demand.kv_bytes, (71 + 72 + 73) * 2 * 2 * 32 * 2);
        assert_eq!(
            (demand.operations, demand.kv),
            (Operations { int8: 3 * 2 * (LAYERS + HEAD), ..Operations::default() }, "f16")
        );
    }

    #[test]
    fn a_token_reads_the_experts_that_it_uses() {
        assert!((experts_used(128, 8, 1) - 8.0).abs() < 1e-12);
        assert!((experts_used(128, 8, 2) - (16.0 - 0.5)).abs() < 1e-12, "one in 16 of the second token's is known");
        assert_eq!(experts_used(4, 4, 3), 4.0);
        assert_eq!(experts_used(8, 2, 0), 0.0);
    }

    #[test]
    fn a_prompt_reads_the_weights_once_for_each_chunk_and_multiplies_them_with_each_token() {
        let weights = weights();
        let options = SessionOptions { context: Some(100), prompt_chunk: 4, ..SessionOptions::default() };
        let demand = Demand::of_prompt(&weights, &options, 10).unwrap();
        // Each chunk computes the logits of one token.
        assert_eq!(demand.operations.count(), 10 * 2 * LAYERS + 3 * 2 * HEAD);
        assert_eq!(demand.kv_bytes, (4 + 8 + 10) * 2 * 2 * 32 * 2);
        let one = Demand::of_prompt(&weights, &SessionOptions { prompt_chunk: 10, ..options }, 10).unwrap();
        assert!(demand.weight_bytes > 2 * one.weight_bytes && demand.weight_bytes < 3 * one.weight_bytes + 1);
        let roof = Roof {
            what: "",
            threads: 1,
            unit: "thread",
            isa: String::new(),
            read_gb_per_s: 1.0,
            copy_gb_per_s: 1.0,
            multiply_gflop_per_s: 1.0,
            int8_gop_per_s: 1e9,
            f16_gflop_per_s: None,
        };
        assert!((demand.seconds(&roof) - demand.bytes() as f64 / 1e9).abs() < 1e-12, "reading is what limits");
    }
}
