//! Scores and mixtures of a KV cache in blocks of 32 codes, which are read as they lie: their numbers go from registers
//! into products.

use super::decode_q8_0::{BLOCK_BYTES, decode};
use super::kernel;
use super::key_scores::key_scores;
#[cfg(feature = "samples")]
use super::key_scores::key_scores_f32;
use super::mix::mix;
#[cfg(feature = "samples")]
use super::mix::mix_f32;
use super::rows::Rows;
#[cfg(feature = "samples")]
use super::samples::numbers;
use crate::isa::{Instructions, Isa};
use crate::panel_block::BLOCK_LEN;
#[cfg(feature = "samples")]
use half::f16;

/// Whether a set's kernels for blocks are faster than those for f32 behind [`super::decode_q8_0`]. All give the same
/// bits.
pub fn reads_blocks(instructions: Instructions) -> bool {
    match instructions.isa() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => true,
        #[cfg(target_arch = "x86_64")]
        Isa::AvxVnni | Isa::Avx2 | Isa::Sse41 => false,
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => false,
        Isa::Scalar => false,
    }
}

kernel! {
    /// As [`super::key_scores_f32`], of the numbers of rows of q8_0, whole blocks each.
    fn key_scores_q8_0(keys: Rows<u8>, queries: Rows<f32>, sums: &mut [f32]) {
        avx512 => super::avx512::key_scores::key_scores_q8_0,
        scalar => key_scores_of_blocks,
    }
    key_scores_q8_0_samples on samples_of_scores
}

kernel! {
    /// As [`super::mix_f32`], of the numbers of rows of q8_0, whole blocks each.
    fn mix_q8_0(rows: Rows<u8>, weights: Rows<f32>, sums: &mut [f32]) {
        avx512 => super::avx512::mix::mix_q8_0,
        scalar => mix_of_blocks,
    }
    mix_q8_0_samples on samples_of_mixtures
}

fn key_scores_of_blocks(keys: Rows<u8>, queries: Rows<f32>, sums: &mut [f32]) {
    key_scores(Rows::dense(&decoded(keys), keys.count(), len_of(keys)), queries, sums);
}

fn mix_of_blocks(rows: Rows<u8>, weights: Rows<f32>, sums: &mut [f32]) {
    mix(Rows::dense(&decoded(rows), rows.count(), len_of(rows)), weights, sums);
}

/// Numbers of a row.
fn len_of(rows: Rows<u8>) -> usize {
    rows.len() / BLOCK_BYTES * BLOCK_LEN
}

fn decoded(rows: Rows<u8>) -> Vec<f32> {
    let mut elements = vec![0.0; rows.count() * len_of(rows)];
    decode(rows, &mut elements);
    elements
}

/// Rows of so many blocks, with scales of both signs, one that is subnormal among them, and all codes; a block between
/// rows is NaN.
#[cfg(feature = "samples")]
fn sample_rows(count: usize, blocks: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..count * (blocks + 1) * BLOCK_BYTES).map(|place| (place * 37 + count) as u8).collect();
    let scales = numbers(count * (blocks + 1), 5 + blocks as u32);
    for (i, (block, scale)) in bytes.chunks_exact_mut(BLOCK_BYTES).zip(scales).enumerate() {
        let scale = if i % (blocks + 1) == blocks { f16::NAN } else { f16::from_f32(scale) };
        block[..2].copy_from_slice(&scale.to_le_bytes());
    }
    if let Some(first) = bytes.first_chunk_mut() {
        *first = f16::from_bits(1).to_le_bytes();
    }
    bytes
}

#[cfg(feature = "samples")]
fn rows_of(bytes: &[u8], count: usize, blocks: usize) -> Rows<'_, u8> {
    Rows::strided(bytes, count, blocks * BLOCK_BYTES, (blocks + 1) * BLOCK_BYTES)
}

/// Heads of one to five blocks, keys and queries that fill no tile. Each also in f32, by the rule for those.
#[cfg(feature = "samples")]
fn samples_of_scores(instructions: Instructions) -> Vec<f32> {
    let mut results = Vec::new();
    for blocks in 0..6 {
        for (keys, queries) in [(1, 1), (8, 2), (17, 3), (64, 6), (65, 4), (130, 7), (3, 13)] {
            let (bytes, xs) = (sample_rows(keys, blocks), numbers(queries * blocks * BLOCK_LEN, 11 + blocks as u32));
            let (rows, xs) = (rows_of(&bytes, keys, blocks), Rows::dense(&xs, queries, blocks * BLOCK_LEN));
            let (mut sums, mut expected) = (vec![f32::NAN; keys * queries], vec![f32::NAN; keys * queries]);
            key_scores_q8_0(instructions, rows, xs, &mut sums);
            key_scores_f32(instructions, Rows::dense(&decoded(rows), keys, len_of(rows)), xs, &mut expected);
            assert!(sums.iter().all(|sum| sum.is_finite()), "sums of {blocks} blocks look beyond their rows");
            assert_eq!(sums, expected, "{keys} keys of {blocks} blocks, {queries} queries");
            results.extend(sums);
        }
    }
    results
}

/// Heads of one to five blocks; rows of weight 0 hold what is no number. Each also in f32, by the rule for those.
#[cfg(feature = "samples")]
fn samples_of_mixtures(instructions: Instructions) -> Vec<f32> {
    let mut results = Vec::new();
    for blocks in 1..6 {
        for (count, queries) in [(0, 1), (1, 2), (2, 3), (8, 1), (65, 7), (9, 4), (17, 11)] {
            let len = blocks * BLOCK_LEN;
            let (mut bytes, mut weights) = (sample_rows(count, blocks), numbers(count * queries, 5 + len as u32));
            for j in (1..count).step_by(3) {
                (0..queries).for_each(|t| weights[t * count + j] = 0.0);
                let broken = [f16::NAN, f16::INFINITY, f16::NEG_INFINITY][j % 3];
                bytes[j * (blocks + 1) * BLOCK_BYTES..][..2].copy_from_slice(&broken.to_le_bytes());
            }
            if count > 2 {
                weights[2] = 0.0;
            }
            let (rows, weights) = (rows_of(&bytes, count, blocks), Rows::dense(&weights, queries, count));
            let mut sums = numbers(len * queries, 9);
            let mut expected = sums.clone();
            mix_q8_0(instructions, rows, weights, &mut sums);
            mix_f32(instructions, Rows::dense(&decoded(rows), count, len), weights, &mut expected);
            assert!(sums.iter().all(|sum| sum.is_finite()), "rows of weight 0 leave no trace");
            assert_eq!(sums, expected, "{count} rows of {blocks} blocks, {queries} queries");
            results.extend(sums);
        }
    }
    results
}
