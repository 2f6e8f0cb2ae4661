//! What each chip has and lacks, as one table. Sources: platform files and operator lists of CANN 8.1, pages of the
//! runtime; a figure that none of them gives is marked as assumed beside it.
//!
//! | chip | cores | bf16 | int4 | f32 products | f16 overflow | capture | flash attention |
//! |---|---|---|---|---|---|---|---|
//! | `910b` | 24 cube, 48 vector | yes | yes | f32, HF32 | infinite | yes | yes |
//! | `a3` | 24 cube, 48 vector | yes | yes | f32, HF32 | infinite | yes | yes |
//! | `910a` | 32 | no | no | f16 | largest number | no | no |
//! | `310p` | 8 cube, 7 vector | no | no | f16 | largest number | yes | no |
//! | `310b` | 1 | no | no | f16 | largest number | no | no |

/// Families that share kernels, rules and limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Atlas A2: Ascend910B1 and its like.
    Ascend910b,
    /// Ascend910_93xx.
    A3,
    /// The first training series.
    Ascend910a,
    /// The inference series: 300I Duo.
    Ascend310p,
    /// The edge series: OrangePi AIpro.
    Ascend310b,
}

/// A chip.
#[derive(Debug, PartialEq, Eq)]
pub struct Chip {
    /// Its name in the settings.
    pub name: &'static str,
    /// What `aclrtGetSocName` answers: programs choose their ways by it.
    pub soc: &'static str,
    /// The family.
    pub family: Family,
    /// Cube cores.
    pub cube_cores: i64,
    /// Vector cores.
    pub vector_cores: i64,
    /// Bytes of device memory.
    pub memory_bytes: u64,
    /// Bytes of the L2 cache.
    pub l2_bytes: i64,
    /// Whether its memory is HBM; else queries for HBM are answered with DDR.
    pub hbm: bool,
    /// Whether it computes with bf16.
    pub bf16: bool,
    /// Whether it computes with int4.
    pub int4: bool,
    /// Whether its cube takes f32 (as HF32 or as it is); else f32 becomes f16.
    pub cube_f32: bool,
    /// Whether an f16 beyond the largest number becomes that number; else infinity. Assumed: the pages give the switch,
    /// not each chip's state.
    pub f16_saturates: bool,
    /// Whether streams can be captured.
    pub capture: bool,
    /// Whether memory can be mapped by virtual addresses.
    pub virtual_memory: bool,
    /// Whether it has the kernels of flash attention.
    pub flash_attention: bool,
    /// Events that can wait or be reset, at most, a card.
    pub events_max: usize,
    /// Streams at most, a card.
    pub streams_max: usize,
}

const GIB: u64 = 1 << 30;
const MIB: i64 = 1 << 20;

const ASCEND_910B: Chip = Chip {
    name: "910b",
    soc: "Ascend910B1",
    family: Family::Ascend910b,
    cube_cores: 24,
    vector_cores: 48,
    memory_bytes: 64 * GIB,
    l2_bytes: 192 * MIB,
    hbm: true,
    bf16: true,
    int4: true,
    cube_f32: true,
    f16_saturates: false,
    capture: true,
    virtual_memory: true,
    flash_attention: true,
    events_max: 65_536,
    streams_max: 1_984,
};

const A3: Chip = Chip { name: "a3", soc: "Ascend910_9391", family: Family::A3, ..ASCEND_910B };

const ASCEND_910A: Chip = Chip {
    name: "910a",
    soc: "Ascend910A",
    family: Family::Ascend910a,
    cube_cores: 32,
    vector_cores: 32,
    memory_bytes: 32 * GIB, // assumed: the platform file gives none
    l2_bytes: 32 * MIB,
    bf16: false,
    int4: false,
    cube_f32: false,
    f16_saturates: true,
    capture: false,
    flash_attention: false,
    streams_max: 1_024,
    ..ASCEND_910B
};

const ASCEND_310P: Chip = Chip {
    name: "310p",
    soc: "Ascend310P3",
    family: Family::Ascend310p,
    cube_cores: 8,
    vector_cores: 7,
    memory_bytes: 24_000_000_000,
    l2_bytes: 16 * MIB,
    hbm: false,
    capture: true,
    events_max: 1_023,
    ..ASCEND_910A
};

const ASCEND_310B: Chip = Chip {
    name: "310b",
    soc: "Ascend310B1",
    family: Family::Ascend310b,
    cube_cores: 1,
    vector_cores: 1,
    memory_bytes: 32 * GIB,
    l2_bytes: 4 * MIB,
    hbm: false,
    virtual_memory: false,
    ..ASCEND_910A
};

/// All chips, the default first.
pub static CHIPS: [Chip; 5] = [ASCEND_910B, A3, ASCEND_910A, ASCEND_310P, ASCEND_310B];

impl Chip {
    /// The chip of a name in the settings (`910b`) or of an exact name that `aclrtGetSocName` would answer; none for
    /// any other.
    pub fn named(name: &str) -> Option<&'static Self> {
        CHIPS.iter().find(|chip| chip.name == name || chip.soc == name)
    }

    /// Whether it is a 910B or an A3, which share all kernels.
    pub fn is_c220(&self) -> bool {
        matches!(self.family, Family::Ascend910b | Family::A3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chip_is_found_by_both_names() {
        for chip in &CHIPS {
            assert_eq!(Chip::named(chip.name), Some(chip));
            assert_eq!(Chip::named(chip.soc), Some(chip));
        }
        assert_eq!(Chip::named("910c"), None);
    }

    #[test]
    fn bf16_is_on_the_c220_only() {
        for chip in &CHIPS {
            assert_eq!(chip.bf16, chip.is_c220(), "{}", chip.name);
        }
    }
}
