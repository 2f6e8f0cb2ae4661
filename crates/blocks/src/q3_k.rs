//! `q3_k`: 256 weights in 3 bits each, in 16 parts with a scale of 6 bits, 3.4375 bits per weight.
//!
//! ```text
//!   0                32                      96          108   110
//!  ┌────────────────┬───────────────────────┬───────────┬─────┐
//!  │ third bits     │ 64 bytes of codes     │ 16 steps  │ d   │   third bit of element e: bit e / 32 of byte e % 32
//!  └────────────────┴───────────────────────┴───────────┴─────┘   d: f16; all little-endian
//! ```
//!
//! weight = d * (step - 32) * (code - 4). Four bits of step j stand in byte j % 8 of the steps, low where j < 8; its
//! upper two bits in byte 8 + j % 4 at bit 2 (j / 4).

use crate::decoder::K_LEN;
#[cfg(test)]
use crate::decoder::{Term, two_bits};
use crate::k_lanes::{BLOCKS_MAX, Batch, BatchImportance};
use crate::k_signed::{self, Format, Found, GROUP, GROUPS, Header, VECTORS};
use crate::packing::{pack_single_bits, pack_two_bits};
use crate::parts::{self, Parts, all_two_bits, multiples, put_single_bits, sixteen_steps};
use crate::search::lanes::{self, Columns, Lanes, Swept};
use crate::search::{descent, importance_of, nearest, signed};
use crate::{Block, DType, f16};

const BYTES: usize = K_LEN / 8 + K_LEN / 4 + 12 + f16::BYTES;
const _: () = assert!(BYTES == DType::Q3K.block_bytes() && K_LEN == DType::Q3K.block_len());

/// Three bits around zero, in sixteen groups of 16 weights.
pub struct Q3K;

impl Block for Q3K {
    const DTYPE: DType = DType::Q3K;
    const USES_IMPORTANCE: bool = true;

    fn decode(bytes: &[u8], weights: &mut [f32]) {
        decode_rows(bytes, weights);
    }

    #[inline(always)]
    fn decode_exact(bytes: &[u8], weights: &mut [f64]) {
        parts::decode_exact::<BYTES, K_LEN, 16, 16>(bytes, weights, parts);
    }

    fn encode(weights: &[f32], bytes: &mut [u8]) {
        encode_rows(weights, bytes);
    }

    fn encode_weighted(weights: &[f32], importance: &[f32], bytes: &mut [u8]) {
        encode_rows_weighted(weights, importance, bytes);
    }
}

#[cfg(test)]
fn terms(block: &[u8; BYTES]) -> [Term; K_LEN] {
    let (third, rest) = block.split_first_chunk::<32>().expect("a block has 110 bytes");
    let (codes, rest) = rest.split_first_chunk::<64>().expect("a block has 110 bytes");
    let scale = f16::widen([rest[12], rest[13]]);
    std::array::from_fn(|e| {
        let code = two_bits(codes, e) | (third[e % 32] >> (e / 32) & 1) << 2;
        Term { scale, step: step(rest, e / 16), code: code as i8 - 4, ..Term::default() }
    })
}

#[cfg(test)]
fn step(packed: &[u8], part: usize) -> i8 {
    let lower = packed[part % 8] >> (part / 8 * 4) & 15;
    let upper = packed[8 + part % 4] >> (part / 4 * 2) & 3;
    (lower | upper << 4) as i8 - 32
}

/// The parts of a block; its elements are those of `terms`, which only tests use.
#[inline(always)]
fn parts(block: &[u8; BYTES]) -> Parts<K_LEN, 16> {
    let (third, rest) = block.split_first_chunk::<32>().expect("a block has 110 bytes");
    let (codes, rest) = rest.split_first_chunk::<64>().expect("a block has 110 bytes");
    let (packed, rest) = rest.split_first_chunk::<12>().expect("a block has 110 bytes");
    let mut codes = all_two_bits(codes);
    put_single_bits(&mut codes, third, 2);
    Parts {
        scales: multiples(f16::widen([rest[0], rest[1]]), sixteen_steps(packed).map(|step| step - 32)),
        minima: None,
        codes: codes.map(|code| code as i8 - 4),
    }
}

#[inline(always)]
pub(crate) fn decode_parts(bytes: &[u8], weights: &mut [f32]) {
    parts::decode::<BYTES, K_LEN, 16, 16>(bytes, weights, parts);
}

#[cfg(test)]
fn decode_scalar(bytes: &[u8], weights: &mut [f32]) {
    crate::decoder::decode(bytes, weights, terms);
}

dispatch! {
    fn decode_rows(bytes: &[u8], weights: &mut [f32]) {
        fast avx2("avx2", "f16c") => crate::avx2::compiled::decode_q3_k,
        portable => decode_parts,
        scalar => decode_scalar,
    }
    decode_variants_agree on crate::samples::encoded(DType::Q3K), in DType::Q3K
}

/// Codes are `-LEVELS .. LEVELS`, steps `-STEP_LEVELS .. STEP_LEVELS`.
const LEVELS: i32 = 4;
const STEP_LEVELS: i32 = 32;

fn pack_steps(steps: &[u8; GROUPS]) -> [u8; 12] {
    std::array::from_fn(|byte| match byte {
        0..8 => steps[byte] & 15 | steps[byte + 8] << 4,
        _ => (0..4).fold(0, |bits, place| bits | steps[byte - 8 + 4 * place] >> 4 << (2 * place)),
    })
}

impl Format<BYTES> for Q3K {
    const LEVELS: i32 = LEVELS;

    fn search(weights: &[f32; GROUP], counts: &[f32; GROUP], codes: &mut [u8; GROUP]) -> f32 {
        descent::search(LEVELS, weights, counts, codes)
    }

    fn search_weighted(weights: &[f32; GROUP], counts: &[f32; GROUP], codes: &mut [u8; GROUP]) -> f32 {
        signed::search(LEVELS, weights, counts, codes)
    }

    fn counts(weights: &[f32; GROUP], importance: &[f32; GROUP], square_sum: f32) -> [f32; GROUP] {
        importance_of(weights, importance, 2.0 * square_sum / K_LEN as f32)
    }

    #[inline(always)]
    fn search_lanes<V: Lanes>(
        sweeps: usize,
        weights: [&Columns<V, GROUP>; VECTORS],
        counts: [&Columns<V, GROUP>; VECTORS],
    ) -> Swept<V, VECTORS> {
        lanes::descent(LEVELS, sweeps, weights, counts)
    }

    #[inline(always)]
    fn counts_lanes<V: Lanes>(
        importance: &BatchImportance,
        batch: &Batch<GROUP>,
        weights: &Columns<V, GROUP>,
    ) -> Columns<V, GROUP> {
        importance.counts::<V, GROUPS, GROUP>(batch, weights)
    }

    /// The largest scale gets the step `-STEP_LEVELS`.
    #[inline(always)]
    fn header(found: &Found, peak: f32) -> Option<Header> {
        if peak == 0.0 {
            return Some(Header { scale: [0; f16::BYTES], steps: [-STEP_LEVELS as i8; GROUPS] });
        }
        let inverse = -(STEP_LEVELS as f32) / peak;
        let steps = found.scales.map(|scale| nearest(inverse * scale).clamp(-STEP_LEVELS, STEP_LEVELS - 1) as i8);
        Some(Header { scale: f16::narrow(1.0 / inverse), steps })
    }

    #[inline(always)]
    fn weighted_header(found: &Found) -> Option<Header> {
        let mut steps = [0; GROUPS];
        let scale = signed::search(STEP_LEVELS, &found.scales, &found.counts, &mut steps);
        Some(Header { scale: f16::narrow(scale), steps: steps.map(|step| step as i8 - STEP_LEVELS as i8) })
    }

    #[inline(always)]
    fn weighted_headers_lanes<V: Lanes>(found: &[Found]) -> [Option<Header>; BLOCKS_MAX] {
        let mut headers = [None; BLOCKS_MAX];
        for (headers, found) in headers.chunks_mut(V::LANES).zip(found.chunks(V::LANES)) {
            let (mut scales, mut counts) = ([[0.0; GROUPS]; BLOCKS_MAX], [[0.0; GROUPS]; BLOCKS_MAX]);
            for ((scales, counts), found) in scales.iter_mut().zip(&mut counts).zip(found) {
                (*scales, *counts) = (found.scales, found.counts);
            }
            let blocks = found.len();
            let (scales, counts) = (lanes::columns(&scales[..blocks]), lanes::columns(&counts[..blocks]));
            let found = lanes::Found::<V, GROUPS>::signed(STEP_LEVELS, &scales, &counts);
            let (scales, codes) = (found.scale.store(), lanes::bytes(&found.codes));
            for (lane, header) in headers[..blocks].iter_mut().enumerate() {
                let mut steps = [0; GROUPS];
                for (step, codes) in steps.iter_mut().zip(&codes) {
                    *step = codes[lane] as i8 - STEP_LEVELS as i8;
                }
                *header = Some(Header { scale: f16::narrow(scales[lane]), steps });
            }
        }
        headers
    }

    #[inline(always)]
    fn pack(header: &Header, codes: &[u8; K_LEN], block: &mut [u8; BYTES]) {
        let (third, rest) = block.split_first_chunk_mut::<32>().expect("a block has 110 bytes");
        let (packed, rest) = rest.split_first_chunk_mut::<64>().expect("a block has 110 bytes");
        let (packed_steps, rest) = rest.split_first_chunk_mut::<12>().expect("a block has 110 bytes");
        *third = pack_single_bits(codes, 2);
        *packed = pack_two_bits(codes);
        *packed_steps = pack_steps(&header.steps.map(|step| (step + STEP_LEVELS as i8) as u8));
        rest.copy_from_slice(&header.scale);
    }
}

encoders! { Q3K, k_signed, [BYTES], encode_q3_k, encode_q3_k_weighted }

exact_test! { Q3K }
