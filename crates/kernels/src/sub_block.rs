//! Types whose blocks consist of sub-blocks: what the words of a packed tile hold.
//!
//! ```text
//!             elements   sub-block   weight                           words of a block in a tile
//!  q2_k       256        16          (d s) q - (dmin m)               0: s and m, 4: two bits of q
//!  q3_k       256        16          (d (s - 32)) (q - 4)             0: third bits, 8: two bits of q, 24: s
//!  q4_k       256        32          (d s) q - (dmin m)               0: s and m, 3: q
//!  q5_k       256        32          (d s) q - (dmin m)               0: s and m, 3: fifth bits, 11: four bits of q
//!  q6_k       256        16          (d s) (q - 32)                   0: four bits of q, 32: two bits of q, 48: s
//!  iq4_nl     32         32          d v[q]                           0: q
//!  iq4_xs     256        32          (d (s - 32)) v[q]                0: four bits of s, 1: q
//!  mxfp4      32         32          2^(e - 128) (2 v[q])             0: q
//!  nvfp4      64         16          (s / 2) (2 v[q])                 0: q
//!  tq2_0      256        32          d (q - 1)                        0: q
//! ```
//!
//! A word holds four bytes of one row. All 256 elements of a tq2_0 block have one scale; products are summed in
//! integers for 32 at a time. Factors in parentheses have at most 19 significant bits, so they are exact in f32.

use crate::panel_block::{ALL_ZERO, BLOCK_LEN, PANEL_ROWS, PanelBlock};

/// Number of the format of q2_k.
pub const Q2_K: usize = 0;
/// Number of the format of q3_k.
pub const Q3_K: usize = 1;
/// Number of the format of q4_k.
pub const Q4_K: usize = 2;
/// Number of the format of q5_k.
pub const Q5_K: usize = 3;
/// Number of the format of q6_k.
pub const Q6_K: usize = 4;
/// Number of the format of iq4_nl.
pub const IQ4_NL: usize = 5;
/// Number of the format of iq4_xs.
pub const IQ4_XS: usize = 6;
/// Number of the format of mxfp4.
pub const MXFP4: usize = 7;
/// Number of the format of nvfp4.
pub const NVFP4: usize = 8;
/// Number of the format of tq2_0.
pub const TQ2_0: usize = 9;

/// Four codes of a block of 32 activations: words of this many.
pub const WORDS: usize = BLOCK_LEN / 4;

/// Most sub-blocks of a block.
const SUB_BLOCKS_MAX: usize = 16;

/// What codes of iq4_nl and iq4_xs stand for.
const CODEBOOK: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice the numbers of FP4 (E2M1), which codes of mxfp4 and nvfp4 stand for. Their scales are halved.
const FP4_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Where codes of the weights that meet a block of activations are.
#[derive(Clone, Copy)]
pub struct Place {
    /// The group of words.
    pub group: usize,
    /// How far their lowest bit is from that of their byte.
    pub shift: usize,
}

/// The further bits of codes.
#[derive(Clone, Copy)]
pub enum High {
    /// None.
    None,
    /// One bit, number `shift` of each byte, worth this much.
    Bit(Place, u8),
    /// Two bits, worth 16 and 32.
    Two(Place),
}

/// A format by its number.
///
/// Blocks of 32 weights are visited in steps of `STEP` blocks: block `k` of step `step` is block `STEP step + k`. What
/// kernels compute from `k` alone is known at compile time.
pub struct Format<const F: usize>;

impl<const F: usize> Format<F> {
    /// Blocks of 32 weights in a block of the file.
    pub const BLOCKS: usize = match F {
        IQ4_NL | MXFP4 => 1,
        NVFP4 => 2,
        _ => 8,
    };

    /// Blocks of 32 weights in a step.
    pub const STEP: usize = match F {
        Q4_K | Q5_K => 2,
        Q2_K | Q3_K | Q6_K | TQ2_0 => 4,
        _ => 1,
    };

    /// Sub-blocks of 32 weights.
    pub const SUBS: usize = match F {
        Q2_K | Q3_K | Q6_K | NVFP4 => 2,
        _ => 1,
    };

    /// What is subtracted from a code.
    pub const OFFSET: i32 = match F {
        Q3_K => 4,
        Q6_K => 32,
        TQ2_0 => 1,
        _ => 0,
    };

    /// The largest magnitude of a code, or of a number of the codebook.
    pub const CODE_MAX: i32 = match F {
        IQ4_NL | IQ4_XS => 127,
        MXFP4 | NVFP4 => 12,
        Q2_K | TQ2_0 => 3,
        Q3_K => 7,
        Q5_K => 31,
        Q6_K => 63,
        _ => 15,
    };

    /// Whether sub-blocks have a minimum.
    pub const MINIMA: bool = matches!(F, Q2_K | Q4_K | Q5_K);

    /// Whether codes stand for the numbers of the codebook.
    pub const IN_CODEBOOK: bool = matches!(F, IQ4_NL | IQ4_XS | MXFP4 | NVFP4);

    /// The codebook.
    pub const CODEBOOK: [i8; 16] = if matches!(F, MXFP4 | NVFP4) { FP4_DOUBLED } else { CODEBOOK };

    /// The bits of each byte that are a code's lower ones.
    pub const LOW_MASK: u8 = if matches!(F, Q2_K | Q3_K | TQ2_0) { 3 } else { 15 };

    /// The lower bits of codes `4 word ...`.
    #[inline(always)]
    pub const fn low(step: usize, k: usize, word: usize) -> Place {
        let (group, shift) = match F {
            Q2_K => (4 + WORDS * step + word, 2 * k),
            Q3_K => (8 + WORDS * step + word, 2 * k),
            Q4_K => (3 + WORDS * step + word, 4 * k),
            Q5_K => (11 + WORDS * step + word, 4 * k),
            Q6_K => (2 * WORDS * step + WORDS * (k % 2) + word, 4 * (k / 2)),
            IQ4_XS => (1 + WORDS / 2 * step + word % 4, word / 4 * 4),
            NVFP4 => (WORDS / 2 * step + word / 4 * 2 + word % 2, word / 2 % 2 * 4),
            TQ2_0 => (WORDS * step + word, 2 * k),
            _ => (word % 4, word / 4 * 4),
        };
        Place { group, shift }
    }

    /// The other bits of codes `4 word ...`.
    #[inline(always)]
    pub const fn high(step: usize, k: usize, word: usize) -> High {
        match F {
            Q3_K => High::Bit(Place { group: word, shift: 4 * step + k }, 4),
            Q5_K => High::Bit(Place { group: 3 + word, shift: 2 * step + k }, 16),
            Q6_K => High::Two(Place { group: 32 + WORDS * step + word, shift: 2 * k }),
            _ => High::None,
        }
    }

    /// Groups of words that hold scales of sub-blocks: the number of the last, plus one.
    const SCALE_GROUPS: usize = match F {
        Q2_K => 4,
        Q3_K => 27,
        Q4_K | Q5_K => 3,
        Q6_K => 52,
        IQ4_XS => 1,
        _ => 0,
    };

    /// Whether a second pair of bytes is read: that of minima, or of more scales.
    const TWO_SCALES: bool = Self::MINIMA || matches!(F, IQ4_XS | NVFP4);

    /// Whether tiles with `scales` pairs of bytes and `groups` groups of words hold all bits that are read: those of
    /// codes inside their bytes, sub-blocks of whole words, and all scales.
    pub const fn fits(scales: usize, groups: usize) -> bool {
        let whole = WORDS.is_multiple_of(Self::SUBS) && Self::BLOCKS.is_multiple_of(Self::STEP);
        let room = Self::BLOCKS * Self::SUBS <= SUB_BLOCKS_MAX && scales == if Self::TWO_SCALES { 2 } else { 1 };
        let bits = Self::LOW_MASK.count_ones() as usize;
        let (mut fits, mut place) = (whole && room && Self::SCALE_GROUPS <= groups, 0);
        while place < Self::BLOCKS * WORDS {
            let (b, word) = (place / WORDS, place % WORDS);
            let low = Self::low(b / Self::STEP, b % Self::STEP, word);
            fits = fits && low.group < groups && low.shift + bits <= 8;
            fits = fits
                && match Self::high(b / Self::STEP, b % Self::STEP, word) {
                    High::None => true,
                    High::Bit(high, _) => high.group < groups && high.shift < 8,
                    High::Two(high) => high.group < groups && high.shift + 2 <= 8,
                };
            place += 1;
        }
        fits
    }

    /// Right shift of the low bits of codes `4 word ...`; constant within a half, except in nvfp4.
    #[inline(always)]
    pub const fn shift<const K: usize, const HALF: usize>(word: usize) -> usize {
        Self::low(0, K, if F == NVFP4 { word } else { HALF * WORDS / 2 }).shift
    }

    /// Initial integer sum: `-(OFFSET + added)` times the sum of the activations, for kernels that multiply codes with
    /// `added` more.
    #[inline(always)]
    pub fn start(x: &super::quantize::ActivationBlock, sub: usize, added: i32) -> i32 {
        // `bias` is minus eight times the sum of the codes, and `halves` are minus four times those of the halves.
        let offset = Self::OFFSET + added;
        if Self::SUBS == 1 { offset * (x.bias >> 3) } else { offset * (x.halves[sub] >> 2) }
    }

    /// The sum of a sub-block's activations.
    #[inline(always)]
    pub fn sum(x: &super::quantize::ActivationBlock, sub: usize) -> f32 {
        if Self::SUBS == 1 { x.sum } else { x.half_sum(sub) }
    }
}

/// Scales and minima of the sub-blocks of sixteen rows.
pub struct Scales {
    /// What a sub-block's codes are multiplied by.
    pub scales: [[f32; PANEL_ROWS]; SUB_BLOCKS_MAX],
    /// What is added to each product of a code and a scale; not set in formats without minima.
    pub minima: [[f32; PANEL_ROWS]; SUB_BLOCKS_MAX],
}

impl Scales {
    /// Zeros.
    pub const ZERO: Scales =
        Scales { scales: [[0.0; PANEL_ROWS]; SUB_BLOCKS_MAX], minima: [[0.0; PANEL_ROWS]; SUB_BLOCKS_MAX] };

    /// Those of a block, whose f16 are these numbers. Compilers vectorize the loops over rows, each of which reads all
    /// codes of its words.
    #[inline(always)]
    pub fn read<const F: usize, const S: usize, const G: usize>(
        &mut self,
        block: &PanelBlock<S, G>,
        d: &[f32; PANEL_ROWS],
        dmin: &[f32; PANEL_ROWS],
    ) {
        match F {
            Q2_K => self.read_q2_k(block, d, dmin),
            Q3_K => self.read_q3_k(block, d),
            Q4_K | Q5_K => self.read_q4_k(block, d, dmin),
            Q6_K => self.read_q6_k(block, d),
            IQ4_XS => self.read_iq4_xs(block, d),
            MXFP4 => self.scales[0] = block.scales[0].map(half_of_e8m0),
            NVFP4 => self.read_nvfp4(block),
            TQ2_0 => self.scales[..8].fill(*d),
            _ => self.scales[0] = *d,
        }
    }

    #[inline(always)]
    fn read_q2_k<const S: usize, const G: usize>(
        &mut self,
        block: &PanelBlock<S, G>,
        d: &[f32; PANEL_ROWS],
        dmin: &[f32; PANEL_ROWS],
    ) {
        for w in 0..4 {
            for row in 0..PANEL_ROWS {
                let bits = word(block, w, row);
                for i in 0..4 {
                    self.scales[4 * w + i][row] = d[row] * number(bits >> (8 * i) & 15);
                    self.minima[4 * w + i][row] = -(dmin[row] * number(bits >> (8 * i + 4) & 15));
                }
            }
        }
    }

    #[inline(always)]
    fn read_q3_k<const S: usize, const G: usize>(&mut self, block: &PanelBlock<S, G>, d: &[f32; PANEL_ROWS]) {
        for w in 0..4 {
            for (row, d) in d.iter().enumerate() {
                let low = word(block, 24 + w % 2, row) >> (w / 2 * 4);
                let high = word(block, 26, row) >> (2 * w);
                for i in 0..4 {
                    let code = low >> (8 * i) & 15 | (high >> (8 * i) & 3) << 4;
                    self.scales[4 * w + i][row] = d * (number(code) - 32.0);
                }
            }
        }
    }

    #[inline(always)]
    fn read_q4_k<const S: usize, const G: usize>(
        &mut self,
        block: &PanelBlock<S, G>,
        d: &[f32; PANEL_ROWS],
        dmin: &[f32; PANEL_ROWS],
    ) {
        for row in 0..PANEL_ROWS {
            let [scales, minima, others] = [word(block, 0, row), word(block, 1, row), word(block, 2, row)];
            for i in 0..4 {
                let [scales, minima, others] = [scales >> (8 * i), minima >> (8 * i), others >> (8 * i)];
                self.scales[i][row] = d[row] * number(scales & 63);
                self.minima[i][row] = -(dmin[row] * number(minima & 63));
                self.scales[4 + i][row] = d[row] * number(others & 15 | scales >> 2 & 48);
                self.minima[4 + i][row] = -(dmin[row] * number(others >> 4 & 15 | minima >> 2 & 48));
            }
        }
    }

    #[inline(always)]
    fn read_q6_k<const S: usize, const G: usize>(&mut self, block: &PanelBlock<S, G>, d: &[f32; PANEL_ROWS]) {
        for w in 0..4 {
            for (row, d) in d.iter().enumerate() {
                let bits = word(block, 48 + w, row).cast_signed();
                for i in 0..4 {
                    self.scales[4 * w + i][row] = d * (bits << (24 - 8 * i) >> 24) as f32;
                }
            }
        }
    }

    #[inline(always)]
    fn read_nvfp4<const S: usize, const G: usize>(&mut self, block: &PanelBlock<S, G>) {
        for i in 0..4 {
            let pair = &block.scales[if i < 2 { 0 } else { S - 1 }];
            self.scales[i] = pair.map(|pair| half_of_ue4m3(pair >> (8 * (i % 2)) & 0xFF));
        }
    }

    #[inline(always)]
    fn read_iq4_xs<const S: usize, const G: usize>(&mut self, block: &PanelBlock<S, G>, d: &[f32; PANEL_ROWS]) {
        for (row, d) in d.iter().enumerate() {
            let (low, high) = (word(block, 0, row), u32::from(block.scales[S - 1][row]));
            for i in 0..8 {
                let code = low >> (4 * i) & 15 | (high >> (2 * i) & 3) << 4;
                self.scales[i][row] = d * (number(code) - 32.0);
            }
        }
    }
}

/// 2^(e - 128), half of an E8M0 scale, exact: below 2 a subnormal number, and NaN for 255. 0 with the mark of codes
/// that are all worth 0: the product of 2^126 and a scale of activations may be infinite.
#[inline(always)]
pub fn half_of_e8m0(e: u16) -> f32 {
    let e = u32::from(e);
    let small = if e == 0 { 0x20_0000 } else { 0x40_0000 };
    let bits = if e < 2 { small } else { (e - 1) << 23 };
    let bits = if e >= u32::from(ALL_ZERO) { 0 } else { bits };
    f32::from_bits(if e == 255 { f32::NAN.to_bits() } else { bits })
}

/// Half of a scale in UE4M3, exact; NaN for 7F. The sign is ignored.
#[inline(always)]
pub fn half_of_ue4m3(scale: u16) -> f32 {
    // Without products of subnormal numbers of f32, which processors compute slowly: the bits are moved instead.
    const UNIT: f32 = f32::from_bits((127 - 10) << 23);
    let bits = u32::from(scale & 0x7F);
    let number = if bits < 8 { bits as f32 * UNIT } else { f32::from_bits((bits << 20) + (119 << 23)) };
    if bits == 0x7F { f32::NAN } else { number }
}

/// Four bytes of a row.
#[inline(always)]
fn word<const S: usize, const G: usize>(block: &PanelBlock<S, G>, group: usize, row: usize) -> u32 {
    u32::from_le_bytes(block.codes[group][row])
}

/// A code as a number.
#[inline(always)]
fn number(code: u32) -> f32 {
    code.cast_signed() as f32
}
