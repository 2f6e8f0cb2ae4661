//! Nodes in execution order, each with a name, one operator, its inputs and one output.
//!
//! ```
//! use trueup_blocks::DType;
//! use trueup_graph::{Graph, Input, Op, TensorType};
//!
//! let mut graph = Graph::default();
//! let tokens = graph.input(Input::Tokens, TensorType::new(DType::I32, &[3]));
//! let table = graph.weight("token_embd.weight", TensorType::new(DType::Q8_0, &[64, 500]));
//! let rows = graph.node("inp_embd", None, Op::get_rows(DType::F32), &[table, tokens]).unwrap();
//! assert_eq!(graph.value(rows).ty.to_string(), "f32[64, 3]");
//! ```

use crate::op::Op;
use crate::shape::TensorType;
use std::collections::HashMap;
use std::fmt;

/// A tensor of a graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ValueId(usize);

impl ValueId {
    /// Its index in [`Graph::values`].
    pub fn index(self) -> usize {
        self.0
    }
}

/// What the host fills in before each computation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Input {
    /// Token ids, i32 `[tokens]`.
    Tokens,
    /// Position of each token in its sequence, i32 `[tokens]`.
    Positions,
    /// Two positions of each token, i32 `[tokens, 2]`, for prefix LMs (Du et al. 2022, section 2.2). In the prefix: the
    /// position in the sequence, and 0. After it: the position of the mark token, and 1, 2, ...
    PositionPairs,
    /// Type of each token, i32 `[tokens]`: 0, that of the first text of a pair.
    TokenTypes,
    /// Which sequence of the KV cache each token belongs to, i32 `[tokens]`.
    Sequences,
    /// Sequence index of each token in a model without a cache, i32 `[tokens]`: always 0, because the batch is one
    /// sequence.
    WholeBatch,
    /// Row of the KV cache that each token is written to: `sequence * rows + position`, where `rows` is the number of
    /// rows of each sequence; i32 `[tokens]`.
    KvRows,
    /// As `KvRows`, for caches that are [rings](StateKind::Ring): `sequence * rows + position % rows`.
    KvRowsWindow,
    /// State slot that each sequence reads, i32 `[streams]`: 0 (zeros) for a new sequence, otherwise `sequence + 1`.
    StateSources,
    /// Slot of a recurrent state that each sequence of the batch is written to, `sequence + 1`; i32 `[streams]`.
    StateTargets,
    /// Indices of the tokens whose logits are requested, i32 `[outputs]`.
    OutputRows,
    /// Mean-pooling weights `[tokens, 1]` in the type of activations: one over the number of tokens, because a batch is
    /// one text.
    PoolShares,
    /// As `WholeBatch`, for the rows of texts, i32 `[outputs]`.
    PoolBatch,
    /// f32 `[capacity, tokens]`: 0 at positions of its sequence that a token attends to, else -inf.
    Mask,
    /// f32 `[rows, tokens]`, for layers with a sliding window: 0 if a token attends to the position in that row of the
    /// [ring](StateKind::Ring), else -inf. `rows` is the number of rows that attention reads.
    MaskWindow,
    /// As `Mask`, for prefix LMs: prefix tokens attend to the whole prefix, and hidden positions have -10000 instead of
    /// -inf.
    MaskPrefix,
    /// As `Mask`, with the distance to the position, as a negative number, instead of 0: for ALiBi.
    MaskDistance,
    /// f32 `[tokens, tokens]`: 0 everywhere, because a batch is one text and every token attends to all of it. Fused
    /// attention requires a mask.
    MaskText,
    /// f32 `[source, tokens]`: 0 at the positions of the encoder's text of a token's sequence, else -inf.
    MaskSource,
    /// The bucket of the distance to each position that attention reads, i32 `[capacity * tokens]`, token by token. The
    /// distance of positions that a token does not attend to is 0.
    Buckets,
    /// The bucket of the distance between each two tokens of the batch, in both directions, i32 `[tokens * tokens]`.
    BucketsText,
    /// The residual stream before the first layer of a graph that omits earlier layers, `[hidden size, tokens]` in the
    /// type of activations.
    Stream,
}

impl Input {
    /// Whether it is one of the masks.
    pub fn is_mask(self) -> bool {
        match self {
            Input::Mask
            | Input::MaskWindow
            | Input::MaskDistance
            | Input::MaskPrefix
            | Input::MaskText
            | Input::MaskSource => true,
            Input::Tokens
            | Input::Positions
            | Input::PositionPairs
            | Input::TokenTypes
            | Input::Sequences
            | Input::WholeBatch
            | Input::KvRows
            | Input::KvRowsWindow
            | Input::StateSources
            | Input::StateTargets
            | Input::OutputRows
            | Input::PoolShares
            | Input::PoolBatch
            | Input::Buckets
            | Input::BucketsText
            | Input::Stream => false,
        }
    }

    /// The name in plans and traces, as other GGUF programs print it.
    pub fn name(self) -> &'static str {
        match self {
            Input::Tokens => "inp_tokens",
            Input::Positions => "inp_pos",
            Input::PositionPairs => "inp_pos_2d",
            Input::TokenTypes => "inp_types",
            Input::Sequences => "inp_seq",
            Input::WholeBatch => "inp_batch",
            Input::KvRows => "inp_kv_rows",
            Input::KvRowsWindow => "inp_kv_rows_swa",
            Input::StateSources => "inp_state_from",
            Input::StateTargets => "inp_state_to",
            Input::OutputRows => "inp_out_ids",
            Input::PoolShares => "inp_mean",
            Input::PoolBatch => "inp_pool",
            Input::Mask => "inp_mask",
            Input::MaskWindow => "inp_mask_swa",
            Input::MaskPrefix => "inp_mask_prefix",
            Input::MaskDistance => "inp_mask_alibi",
            Input::MaskText => "inp_mask_text",
            Input::MaskSource => "inp_mask_cross",
            Input::Buckets => "inp_pos_bucket",
            Input::BucketsText => "inp_pos_bucket_text",
            Input::Stream => "inp_stream",
        }
    }
}

/// Where a value comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Filled in by the host.
    Input(Input),
    /// A tensor of the model file, by its name.
    Weight,
    /// Kept from one computation to the next, zero at first: the KV cache and recurrent states.
    State(StateKind),
    /// Computed by the node with this index.
    Node(usize),
}

impl Origin {
    /// Whether it is a state.
    pub fn is_state(self) -> bool {
        match self {
            Origin::State(_) => true,
            Origin::Input(_) | Origin::Weight | Origin::Node(_) => false,
        }
    }
}

/// What a state holds for each sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateKind {
    /// `[elements, positions, sequences]`: a row for each position.
    Rows,
    /// `[elements, rows, sequences]`, for layers with a sliding window: the last positions only. Position `p` is in row
    /// `p % rows`.
    Ring,
    /// `[elements, 1, slots]`: one row per sequence, in slot `sequence + 1`; slot 0 stays zero.
    Recurrent,
}

impl StateKind {
    /// The type of a state of type `ty` in a cache with room for `room` positions of each sequence; rings have at most
    /// `ring` rows.
    pub fn with_room(self, ty: &TensorType, room: usize, ring: usize) -> TensorType {
        let [elements, _, sequences, _] = ty.shape.sizes();
        match self {
            StateKind::Rows => TensorType::new(ty.dtype, &[elements, room, sequences]),
            StateKind::Ring => TensorType::new(ty.dtype, &[elements, room.min(ring), sequences]),
            StateKind::Recurrent => *ty,
        }
    }
}

/// A tensor: its name, its type and where it comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Value {
    /// Unique in the graph; a node's output has the node's name.
    pub name: String,
    /// Shape and data type.
    pub ty: TensorType,
    /// Where it comes from.
    pub origin: Origin,
}

/// One operator applied to its inputs.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// Unique in the graph. Matches the traces of other GGUF programs, with a dash and the layer index: `ffn_up-3`.
    pub name: String,
    /// The layer, from 0; `None` for nodes outside the layers.
    pub layer: Option<usize>,
    /// What is computed.
    pub op: Op,
    /// In the operator's order.
    pub inputs: Vec<ValueId>,
    /// The result.
    pub output: ValueId,
}

/// Nodes in execution order and the values between them.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Graph {
    nodes: Vec<Node>,
    values: Vec<Value>,
    /// The first value of each name.
    names: HashMap<String, ValueId>,
}

/// An operator was given inputs that it cannot take.
#[derive(Clone, PartialEq, Debug)]
pub struct ShapeError {
    /// The node that was to be added.
    pub node: String,
    /// Its operator's name.
    pub op: &'static str,
    /// Names and types of its inputs.
    pub inputs: Vec<String>,
    /// Which rule they break.
    pub problem: String,
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}) of {}: {}", self.node, self.op, self.inputs.join(", "), self.problem)
    }
}

impl std::error::Error for ShapeError {}

impl Graph {
    /// Adds something the host fills in.
    pub fn input(&mut self, input: Input, ty: TensorType) -> ValueId {
        self.push(input.name().to_owned(), ty, Origin::Input(input))
    }

    /// Adds a tensor of the model file. Asking for the same name again gives the same value.
    pub fn weight(&mut self, name: &str, ty: TensorType) -> ValueId {
        let known = self.find(name).filter(|id| self.value(*id).origin == Origin::Weight);
        known.unwrap_or_else(|| self.push(name.to_owned(), ty, Origin::Weight))
    }

    /// Adds a tensor that outlives the computation.
    pub fn state(&mut self, name: &str, kind: StateKind, ty: TensorType) -> ValueId {
        self.push(name.to_owned(), ty, Origin::State(kind))
    }

    /// Adds a node and gives its output, whose type the operator infers.
    pub fn node(
        &mut self,
        name: impl Into<String>,
        layer: Option<usize>,
        op: Op,
        inputs: &[ValueId],
    ) -> Result<ValueId, ShapeError> {
        let name = name.into();
        let types: Vec<TensorType> = inputs.iter().map(|input| self.value(*input).ty).collect();
        let ty = op.infer(&types).map_err(|problem| ShapeError {
            node: name.clone(),
            op: op.name(),
            inputs: inputs.iter().map(|id| format!("{} {}", self.value(*id).name, self.value(*id).ty)).collect(),
            problem,
        })?;
        let output = self.push(name.clone(), ty, Origin::Node(self.nodes.len()));
        self.nodes.push(Node { name, layer, op, inputs: inputs.to_vec(), output });
        Ok(output)
    }

    /// All nodes, in execution order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// All values; a [`ValueId`] is an index into them.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// The value of that id.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0]
    }

    /// Ids and values in order.
    pub fn iter_values(&self) -> impl Iterator<Item = (ValueId, &Value)> {
        self.values.iter().enumerate().map(|(index, value)| (ValueId(index), value))
    }

    /// The value of that name.
    pub fn find(&self, name: &str) -> Option<ValueId> {
        self.names.get(name).copied()
    }

    /// Adds a value of another graph that no node computes.
    pub(crate) fn copy(&mut self, value: &Value) -> ValueId {
        self.push(value.name.clone(), value.ty, value.origin)
    }

    /// Adds a node whose inputs are values of this graph and whose result was found to be of type `ty`.
    pub(crate) fn append(&mut self, node: Node, ty: TensorType) -> ValueId {
        let output = self.push(node.name.clone(), ty, Origin::Node(self.nodes.len()));
        self.nodes.push(Node { output, ..node });
        output
    }

    fn push(&mut self, name: String, ty: TensorType, origin: Origin) -> ValueId {
        let id = ValueId(self.values.len());
        debug_assert!(!self.names.contains_key(&name), "two values have the name {name}");
        self.names.entry(name.clone()).or_insert(id);
        self.values.push(Value { name, ty, origin });
        id
    }
}
