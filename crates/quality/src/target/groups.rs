//! The groups of tensors that share a type, and the candidate types of each group.

use trueup_blocks::DType;
use trueup_formats::TensorInfo;
use trueup_formats::gguf::layer_of;
use trueup_quantize::Freedom;

/// Quantized candidate types, smallest first. Types for ternary models are not candidates.
const QUANTIZED: [DType; 13] = [
    DType::Q2K,
    DType::Q3K,
    DType::Mxfp4,
    DType::Iq4Xs,
    DType::Q4_0,
    DType::Iq4Nl,
    DType::Q4K,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5K,
    DType::Q5_1,
    DType::Q6K,
    DType::Q8_0,
];

/// Tensors of a GGUF file start at multiples of this number of bytes.
const ALIGNMENT: u64 = 32;

/// Bits per weight near which a type is measured.
const MIDDLE_BITS: f64 = 4.5;

/// Tensors of one layer that are multiplied by the same input, and the key of their group.
const TOGETHER: [(&str, &str); 8] = [
    ("attn_q", "attn_q attn_k"),
    ("attn_k", "attn_q attn_k"),
    ("ffn_gate", "ffn_gate ffn_up"),
    ("ffn_up", "ffn_gate ffn_up"),
    ("ffn_gate_exps", "ffn_gate_exps ffn_up_exps"),
    ("ffn_up_exps", "ffn_gate_exps ffn_up_exps"),
    ("ffn_gate_shexp", "ffn_gate_shexp ffn_up_shexp"),
    ("ffn_up_shexp", "ffn_gate_shexp ffn_up_shexp"),
];

/// Tensors that share a type.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Group {
    /// The names of the tensors.
    pub name: String,
    /// The numbers of the tensors in the file.
    pub tensors: Vec<usize>,
    /// The type in the source.
    pub source: DType,
    /// The candidate types, smallest first; at least one.
    pub candidates: Vec<DType>,
    /// The layer; `None` outside of the layers.
    pub layer: Option<usize>,
}

impl Group {
    /// Bytes of the tensors in a file, with their padding.
    pub fn bytes(&self, dtype: DType, tensors: &[TensorInfo]) -> u64 {
        let of = |number: &usize| {
            let bytes = dtype.row_bytes(tensors[*number].elements()).unwrap_or(u64::MAX);
            bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX)
        };
        self.tensors.iter().map(of).fold(0, u64::saturating_add)
    }

    /// The type of the group in the base: q8_0, or the type of the source if q8_0 is no candidate.
    pub fn base(&self) -> DType {
        if self.candidates.contains(&DType::Q8_0) { DType::Q8_0 } else { self.source }
    }

    /// The types whose costs are measured: all quantized ones, or [`Group::anchors`].
    pub fn measured_types(&self, all: bool) -> Vec<DType> {
        let quantized: Vec<DType> = self.measurable().copied().filter(|dtype| dtype.is_quantized()).collect();
        if all && !quantized.is_empty() { quantized } else { self.anchors() }
    }

    /// All candidates except the types of the source and of the base.
    pub fn measurable(&self) -> impl Iterator<Item = &DType> {
        let base = self.base();
        self.candidates.iter().filter(move |dtype| **dtype != self.source && **dtype != base)
    }

    /// The types that are always measured: one near 4.5 bits per weight, and the smallest if it has over 0.5 bits less.
    pub fn anchors(&self) -> Vec<DType> {
        let candidates = || self.measurable();
        let middle = candidates().min_by(|a, b| middle_distance(**a).total_cmp(&middle_distance(**b)));
        let Some(middle) = middle else { return Vec::new() };
        let smallest = candidates().next().filter(|dtype| middle.bits_per_weight() - dtype.bits_per_weight() > 0.5);
        smallest.into_iter().chain([middle]).copied().collect()
    }
}

/// The difference between the bits per weight of a type and [`MIDDLE_BITS`].
pub(super) fn middle_distance(dtype: DType) -> f64 {
    (dtype.bits_per_weight() - MIDDLE_BITS).abs()
}

/// The groups of a file, in the order of their first tensors. Blocks of named types must divide the rows.
pub(super) fn groups(tensors: &[TensorInfo], freedom: &[Freedom]) -> Vec<Group> {
    let mut groups: Vec<(String, Group)> = Vec::new();
    for (number, (tensor, freedom)) in tensors.iter().zip(freedom).enumerate() {
        let named = match freedom {
            Freedom::Kept => continue,
            Freedom::Named(dtype) => Some(*dtype),
            Freedom::Free => None,
        };
        let key = format!("{} {} {named:?}", place(&tensor.name), tensor.dtype);
        let candidates = candidates(tensor, named);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => {
                group.name = format!("{} {}", group.name, tensor.name);
                group.tensors.push(number);
                group.candidates.retain(|dtype| candidates.contains(dtype));
                if group.candidates.is_empty() {
                    group.candidates.push(tensor.dtype);
                }
            }
            None => {
                let layer = layer_of(&tensor.name).and_then(|layer| layer.strip_prefix("blk.")?.parse().ok());
                let (name, source) = (tensor.name.clone(), tensor.dtype);
                groups.push((key, Group { name, tensors: vec![number], source, candidates, layer }));
            }
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// The key of a tensor's group: the layer and a part of the name.
fn place(name: &str) -> String {
    let Some(layer) = layer_of(name) else { return name.to_owned() };
    let rest = name.strip_prefix(layer).unwrap_or(name).trim_start_matches('.');
    let stem = rest.strip_suffix(".weight").unwrap_or(rest);
    let together = TOGETHER.iter().find(|(one, _)| *one == stem).map_or(stem, |(_, all)| all);
    format!("{layer} {together}")
}

/// The candidate types of a tensor: only `named`, if an option or a rule names a type. Otherwise, smallest first: types
/// with fewer bits whose blocks divide the rows, and the type of the source, or f16 if that has more than 16 bits.
fn candidates(tensor: &TensorInfo, named: Option<DType>) -> Vec<DType> {
    let columns = tensor.shape.first().copied().unwrap_or(1);
    let fits =
        |dtype: &DType| dtype.bits_per_weight() < tensor.dtype.bits_per_weight() && dtype.row_bytes(columns).is_some();
    if let Some(dtype) = named {
        return vec![dtype];
    }
    let largest = if matches!(tensor.dtype, DType::F32 | DType::F64) { DType::F16 } else { tensor.dtype };
    let mut all: Vec<DType> = QUANTIZED.into_iter().filter(fits).chain([largest]).collect();
    all.sort_by(|a, b| a.bits_per_weight().total_cmp(&b.bits_per_weight()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, shape: &[u64], dtype: DType) -> TensorInfo {
        TensorInfo::new(name, shape, dtype).unwrap()
    }

    #[test]
    fn tensors_with_the_same_input_share_a_type() {
        let tensors = [
            tensor("token_embd.weight", &[256, 10], DType::F16),
            tensor("blk.0.attn_q.weight", &[256, 8], DType::F16),
            tensor("blk.0.attn_k.weight", &[256, 8], DType::F16),
            tensor("blk.0.attn_norm.weight", &[256], DType::F32),
            tensor("blk.0.ffn_down.weight", &[96, 256], DType::F16),
            tensor("blk.1.attn_q.weight", &[256, 8], DType::F16),
            tensor("blk.1.attn_k.weight", &[256, 8], DType::F16),
        ];
        let free = Freedom::Free;
        let freedom = [free, free, free, Freedom::Kept, free, Freedom::Named(DType::Q6K), free];
        let groups = groups(&tensors, &freedom);
        let numbers: Vec<&[usize]> = groups.iter().map(|group| group.tensors.as_slice()).collect();
        assert_eq!(numbers, [&[0][..], &[1, 2], &[4], &[5], &[6]]);
        assert_eq!(
            groups.iter().map(|group| group.layer).collect::<Vec<_>>(),
            [None, Some(0), Some(0), Some(1), Some(1)]
        );
        assert_eq!(groups[1].anchors(), [DType::Q2K, DType::Q4_0]);
        assert_eq!((groups[2].candidates[0], groups[2].anchors()), (DType::Mxfp4, vec![DType::Q4_0]));
        assert_eq!((&groups[3].candidates[..], groups[3].base()), (&[DType::Q6K][..], DType::F16));
        assert_eq!(groups[2].bytes(DType::Q4_0, &tensors), 96 * 256 / 32 * 18);
        assert_eq!(groups[0].candidates.last(), Some(&DType::F16));
    }

    #[test]
    fn no_type_has_more_bits_than_the_source_and_rows_are_whole_blocks() {
        let types = |columns, dtype| candidates(&tensor("a.weight", &[columns, 2], dtype), None);
        assert_eq!(types(48, DType::F32), [DType::F16]);
        assert_eq!(types(48, DType::Bf16), [DType::Bf16]);
        assert_eq!(types(64, DType::Q4_1), [DType::Mxfp4, DType::Q4_0, DType::Iq4Nl, DType::Q4_1]);
        assert_eq!(types(256, DType::Q8_0).last(), Some(&DType::Q8_0));
    }
}
