//! Where each tensor of a file stands, by the order that its version has.

use super::header::{Header, Version};
use crate::checkpoint::TensorInfo;
use crate::error::{Error, Result};
use crate::source_file::SourceFile;
use std::ops::Range;
use trueup_blocks::DType;

/// Bytes of an f32.
pub(super) const F32_BYTES: u64 = 4;

/// One kind of tensor, in the order that a version has; those of a layer stand for all layers, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Embedding,
    AttentionNorm,
    Query,
    Key,
    Value,
    AttentionOutput,
    FeedForwardNorm,
    Gate,
    Down,
    Up,
    Norm,
    /// Cosines and sines of the rope angles: no tensor of the model.
    Angles,
    /// Only when it is not the embedding.
    Output,
}

const ORDER_V0: [Part; 13] = [
    Part::Embedding,
    Part::AttentionNorm,
    Part::Query,
    Part::Key,
    Part::Value,
    Part::AttentionOutput,
    Part::FeedForwardNorm,
    Part::Gate,
    Part::Down,
    Part::Up,
    Part::Norm,
    Part::Angles,
    Part::Output,
];

/// Norms first, since version 2 leaves them as f32.
const ORDER_V1: [Part; 12] = [
    Part::AttentionNorm,
    Part::FeedForwardNorm,
    Part::Norm,
    Part::Embedding,
    Part::Query,
    Part::Key,
    Part::Value,
    Part::AttentionOutput,
    Part::Gate,
    Part::Down,
    Part::Up,
    Part::Output,
];

/// Where a tensor's numbers stand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// f32 in these bytes.
    Plain { bytes: Range<u64> },
    /// i8 in the bytes `values`, f32 scales from byte `scales` on, one for each `group` values.
    Grouped { values: Range<u64>, scales: u64, group: u64 },
}

/// All tensors of a file.
pub(super) struct Layout {
    pub tensors: Vec<TensorInfo>,
    pub places: Vec<Place>,
    /// Version 0: where the cosines start; the sines follow.
    pub angles: Option<u64>,
}

impl Part {
    /// Name without the layer, shape innermost first, and whether each layer has one.
    fn facts(self, header: &Header) -> (&'static str, Vec<u64>, bool) {
        let Header { dim, hidden_dim, vocabulary, context, .. } = *header;
        match self {
            Part::Embedding => ("tok_embeddings.weight", vec![dim, vocabulary], false),
            Part::AttentionNorm => ("attention_norm.weight", vec![dim], true),
            Part::Query => ("attention.wq.weight", vec![dim, dim], true),
            Part::Key => ("attention.wk.weight", vec![dim, header.kv_dim()], true),
            Part::Value => ("attention.wv.weight", vec![dim, header.kv_dim()], true),
            Part::AttentionOutput => ("attention.wo.weight", vec![dim, dim], true),
            Part::FeedForwardNorm => ("ffn_norm.weight", vec![dim], true),
            Part::Gate => ("feed_forward.w1.weight", vec![dim, hidden_dim], true),
            Part::Down => ("feed_forward.w2.weight", vec![hidden_dim, dim], true),
            Part::Up => ("feed_forward.w3.weight", vec![dim, hidden_dim], true),
            Part::Norm => ("norm.weight", vec![dim], false),
            // Cosines and sines, each half a head for each position.
            Part::Angles => ("freqs", vec![header.head_dim(), context], false),
            Part::Output => ("output.weight", vec![dim, vocabulary], false),
        }
    }

    fn is_quantized(self, header: &Header) -> bool {
        let norm = matches!(self, Part::AttentionNorm | Part::FeedForwardNorm | Part::Norm);
        header.version == Version::V2 && !norm
    }
}

fn order(version: Version) -> &'static [Part] {
    match version {
        Version::V0 => &ORDER_V0,
        Version::V1 | Version::V2 => &ORDER_V1,
    }
}

/// Size of the file that a header speaks of; `None` beyond 2^64.
fn file_bytes(header: &Header) -> Option<u64> {
    let mut bytes = header.version.header_bytes();
    for part in order(header.version).iter().filter(|part| **part != Part::Output || !header.shared) {
        let (_, shape, each_layer) = part.facts(header);
        let elements = shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size))?;
        let count = if each_layer { header.layers } else { 1 };
        let one = match header.group {
            Some(group) if part.is_quantized(header) => {
                elements.checked_add(elements.checked_div(group)?.checked_mul(F32_BYTES)?)?
            }
            Some(_) | None => elements.checked_mul(F32_BYTES)?,
        };
        bytes = bytes.checked_add(one.checked_mul(count)?)?;
    }
    Some(bytes)
}

/// Compares the size of the file and lays the tensors out.
pub(super) fn lay_out(source: &SourceFile, header: &Header) -> Result<Layout> {
    check_groups(source, header)?;
    let expected = file_bytes(header).ok_or_else(|| {
        Error::new(source.path(), "the sizes exceed 2^64 bytes").at("header").help("the file is damaged")
    })?;
    if expected != source.bytes() {
        let problem = format!("expected {expected} bytes for its sizes, found {}", source.bytes());
        return Err(Error::new(source.path(), problem)
            .at("header")
            .help("the file is damaged, truncated or in another format"));
    }
    let mut layout = Layout { tensors: Vec::new(), places: Vec::new(), angles: None };
    let mut position = header.version.header_bytes();
    for part in order(header.version).iter().filter(|part| **part != Part::Output || !header.shared) {
        let (name, shape, each_layer) = part.facts(header);
        for layer in 0..if each_layer { header.layers } else { 1 } {
            let name = if each_layer { format!("layers.{layer}.{name}") } else { name.to_owned() };
            let info = TensorInfo::new(name, &shape, DType::F32)
                .map_err(|error| Error { path: source.path().into(), ..error })?;
            let start = position;
            let group = header.group.filter(|_| part.is_quantized(header));
            let (place, end) = place(&info, start, group);
            position = end;
            if *part == Part::Angles {
                layout.angles = Some(start);
            } else {
                layout.tensors.push(info);
                layout.places.push(place);
            }
        }
    }
    Ok(layout)
}

/// The place of a tensor that starts at `start`, and where the next one starts. The sum of all is known to be the
/// file's size.
fn place(info: &TensorInfo, start: u64, group: Option<u64>) -> (Place, u64) {
    let Some(group) = group else {
        let end = start.saturating_add(info.bytes);
        return (Place::Plain { bytes: start..end }, end);
    };
    let elements = info.elements();
    let scales = start.saturating_add(elements);
    let scale_bytes = elements.checked_div(group).unwrap_or(0).saturating_mul(F32_BYTES);
    (Place::Grouped { values: start..scales, scales, group }, scales.saturating_add(scale_bytes))
}

/// Groups run over the flattened matrix: they must divide its size, not its rows.
fn check_groups(source: &SourceFile, header: &Header) -> Result<()> {
    let Some(group) = header.group else { return Ok(()) };
    for part in order(header.version).iter().filter(|part| part.is_quantized(header)) {
        let (name, shape, _) = part.facts(header);
        let elements = shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
        if !elements.is_some_and(|elements| elements.is_multiple_of(group)) {
            let problem =
                format!("expected groups that divide the {shape:?} numbers of {name}, found groups of {group}");
            return Err(Error::new(source.path(), problem).at("group_size at byte 37").help("export the model again"));
        }
    }
    Ok(())
}

/// f32 numbers from i8 values and scales. `start` is where `out` begins in the matrix, in bytes of f32; both on whole
/// numbers.
pub(super) fn read_grouped(
    source: &SourceFile,
    values: u64,
    scales: u64,
    group: u64,
    start: u64,
    out: &mut [u8],
) -> Result<()> {
    let (numbers, rest) = out.as_chunks_mut::<4>();
    assert!(rest.is_empty() && start.is_multiple_of(F32_BYTES), "a range that cuts a number");
    if numbers.is_empty() {
        return Ok(());
    }
    let first = start.checked_div(F32_BYTES).unwrap_or(0);
    let last = first.saturating_add(u64::try_from(numbers.len()).unwrap_or(u64::MAX)).saturating_sub(1);
    let first_group = first.checked_div(group).unwrap_or(0);
    let groups = last.checked_div(group).unwrap_or(0).saturating_sub(first_group).saturating_add(1);
    let mut bytes = vec![0; numbers.len()];
    source.read_at(values.saturating_add(first), &mut bytes)?;
    // Fewer than numbers in `out`, plus one.
    let mut scale_bytes = vec![[0_u8; 4]; usize::try_from(groups).unwrap_or(usize::MAX)];
    source.read_at(scales.saturating_add(first_group.saturating_mul(F32_BYTES)), scale_bytes.as_flattened_mut())?;
    // The first group may have begun before the range.
    let first_len = group.saturating_sub(first.checked_rem(group).unwrap_or(0));
    let (head, tail) = bytes.split_at(usize::try_from(first_len).unwrap_or(usize::MAX).min(bytes.len()));
    let chunks = std::iter::once(head).chain(tail.chunks(usize::try_from(group).unwrap_or(usize::MAX)));
    let products = chunks.zip(&scale_bytes).flat_map(|(chunk, scale)| {
        let scale = f32::from_le_bytes(*scale);
        chunk.iter().map(move |byte| f32::from(byte.cast_signed()) * scale)
    });
    numbers.iter_mut().zip(products).for_each(|(number, product)| *number = product.to_le_bytes());
    Ok(())
}
