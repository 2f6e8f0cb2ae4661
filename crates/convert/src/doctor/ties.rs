//! Tensors that another one has already: a head that is the embedding again, a matrix that is that of another layer.

use super::finding::{Findings, Place, Rule};
use super::patient::Patient;
use super::scan::Summary;
use std::collections::HashMap;
use trueup_formats::{Result, TensorInfo, quote};
use trueup_models::{ModelSpec, TOKEN_EMBEDDING};

pub(super) const RULES: &[&Rule] = &[&HEAD_REPEATED, &HEAD_IGNORED, &TENSOR_REPEATED];

static HEAD_REPEATED: Rule = Rule::note(
    "head-repeats-embedding",
    "without a separate output head, programs use the embedding: the file could be smaller",
    "nothing, or set tie_word_embeddings in config.json and convert the model again",
);
static HEAD_IGNORED: Rule = Rule::warning(
    "head-ignored",
    "programs that use the head and programs that use the embedding compute different logits; `trueup convert` keeps the head",
    "find out which one the model was trained with; set tie_word_embeddings to false, or remove the tensor",
);
static TENSOR_REPEATED: Rule = Rule::warning(
    "tensor-repeated",
    "trained layers differ: one may have overwritten the other, or a layer was copied to make the model deeper",
    "compare both with the original model (`trueup diff`)",
);

/// How much of two tensors is in memory at a time; a multiple of every block's bytes is taken.
const PIECE_BYTES: u64 = 1 << 20;

pub(super) fn look(patient: &Patient, seen: &[Summary], findings: &mut Findings) -> Result<()> {
    look_at_head(patient, seen, findings)?;
    let tensors = patient.checkpoint().tensors();
    let mut first: HashMap<(u64, &[u64], trueup_blocks::DType), usize> = HashMap::new();
    let heads = patient.names_of_token_rows();
    for (number, (tensor, summary)) in tensors.iter().zip(seen).enumerate() {
        let is_head = heads.contains(&tensor.name);
        if tensor.shape.len() < 2 || !summary.is_read || summary.is_zero || is_head {
            continue;
        }
        let key = (summary.checksum, tensor.shape.as_slice(), tensor.dtype);
        let Some(other) = first.get(&key).copied() else {
            first.insert(key, number);
            continue;
        };
        if are_equal(patient, other, number)? {
            let place = Place::file(patient.file_of(&tensor.name)).tensor(&tensor.name);
            let found = format!("bit-identical to {}", quote(&tensors[other].name));
            findings.add(&TENSOR_REPEATED, place, found);
        }
    }
    Ok(())
}

fn look_at_head(patient: &Patient, seen: &[Summary], findings: &mut Findings) -> Result<()> {
    let tensor = |name: Option<String>| patient.tensor(&name?);
    let (Some((embedding_number, embedding)), Some((head_number, head))) =
        (tensor(patient.name_of(TOKEN_EMBEDDING)), tensor(patient.name_of_head()))
    else {
        return Ok(());
    };
    let alike = (&embedding.shape, embedding.dtype) == (&head.shape, head.dtype);
    let (of_embedding, of_head) = (&seen[embedding_number], &seen[head_number]);
    if alike && !(of_embedding.is_read && of_head.is_read) {
        return Ok(());
    }
    let equal =
        alike && of_embedding.checksum == of_head.checksum && are_equal(patient, embedding_number, head_number)?;
    let is_tied = patient.config().is_some() && patient.valid_spec().is_some_and(ModelSpec::has_head_of_embedding);
    let place = Place::file(patient.file_of(&head.name)).tensor(&head.name);
    let named = quote(&embedding.name);
    if equal {
        let found = format!("bit-identical to {named}: {} bytes could be saved", head.bytes);
        findings.add(&HEAD_REPEATED, place, found);
    } else if is_tied {
        findings.add(&HEAD_IGNORED, place, format!("tie_word_embeddings is true, but its values differ from {named}"));
    }
    Ok(())
}

/// Whether two tensors of one shape and type have the same bytes. Asked only where their checksums are equal, at most
/// once for each tensor and once for the head: all of a model is read three times at most.
fn are_equal(patient: &Patient, a: usize, b: usize) -> Result<bool> {
    let checkpoint = patient.checkpoint();
    let info: &TensorInfo = &checkpoint.tensors()[a];
    let block = info.dtype.block_bytes() as u64;
    let step = PIECE_BYTES / block * block;
    let mut offset = 0;
    while offset < info.bytes {
        let size = step.min(info.bytes - offset) as usize;
        let (mut left, mut right) = (vec![0; size], vec![0; size]);
        checkpoint.read(a, offset, &mut left)?;
        checkpoint.read(b, offset, &mut right)?;
        if left != right {
            return Ok(false);
        }
        offset += size as u64;
    }
    Ok(true)
}
