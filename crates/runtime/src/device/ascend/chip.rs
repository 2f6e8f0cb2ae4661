//! Features of each chip, from the vendor's documentation and kernel lists (CANN 8.1). None has been confirmed on
//! hardware.

use trueup_blocks::DType;

/// What a chip can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chip {
    /// Its family's name: `910b`.
    pub name: &'static str,
    /// Bytes of memory of a simulated card, unless it is said.
    pub memory_bytes: u64,
    /// Whether it has bf16.
    pub bf16: bool,
    /// Whether numbers beyond the range of f16 become its largest instead of infinite: no page says so, but of these
    /// chips it is told.
    pub f16_saturates: bool,
    /// Whether it multiplies with weights in groups of 32 integers.
    pub quantized_products: Quantized,
    /// Whether matrices of f32 are multiplied as they are; else both are rounded to f16.
    pub f32_products: bool,
    /// Whether it has an operator for rms_norm.
    pub rms_norm: bool,
    /// Whether it has an operator for rope.
    pub rotation: bool,
    /// Whether it has an operator for the whole of attention.
    pub fused_attention: bool,
    /// Whether its work can be kept and asked for as one.
    pub capture: bool,
}

/// How a chip multiplies with blocks of weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quantized {
    /// q4_0 and q8_0, as they are.
    Both,
    /// q8_0, decoded to f16 piece by piece; no 4-bit types.
    Decoded,
}

const GIB: u64 = 1 << 30;

/// Training chips of the second generation, and those like them.
const A2: Chip = Chip {
    name: "910b",
    memory_bytes: 64 * GIB,
    bf16: true,
    f16_saturates: false,
    quantized_products: Quantized::Both,
    f32_products: true,
    rms_norm: true,
    rotation: true,
    fused_attention: true,
    capture: true,
};

/// Whether the libraries call a chip by this name.
type IsCalled = fn(&str) -> bool;

/// All of them, with the names that the libraries give them.
const CHIPS: [(Chip, IsCalled); 5] = [
    (A2, |soc| soc.strip_prefix("Ascend910B").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))),
    (Chip { name: "a3", ..A2 }, |soc| soc.starts_with("Ascend910_93")),
    (
        Chip {
            name: "310p",
            memory_bytes: 24_000_000_000,
            bf16: false,
            f16_saturates: true,
            quantized_products: Quantized::Decoded,
            f32_products: false,
            rms_norm: true,
            rotation: false,
            fused_attention: false,
            capture: true,
        },
        |soc| soc.starts_with("Ascend310P"),
    ),
    (
        Chip {
            name: "310b",
            memory_bytes: 32 * GIB,
            bf16: false,
            f16_saturates: true,
            quantized_products: Quantized::Decoded,
            f32_products: false,
            rms_norm: false,
            rotation: false,
            fused_attention: false,
            capture: false,
        },
        |soc| soc.starts_with("Ascend310B"),
    ),
    (
        Chip {
            name: "910a",
            memory_bytes: 32 * GIB,
            bf16: false,
            f16_saturates: true,
            quantized_products: Quantized::Decoded,
            f32_products: false,
            rms_norm: true,
            rotation: false,
            fused_attention: false,
            capture: false,
        },
        // With a line behind it, it names other families: a3, and those that this version does not know.
        |soc| soc.strip_prefix("Ascend910").is_some_and(|rest| !rest.starts_with('_')),
    ),
];

impl Chip {
    /// Whether the chip has operators for blocks of this type.
    pub fn reads_blocks(&self, dtype: DType) -> bool {
        match self.quantized_products {
            Quantized::Both => matches!(dtype, DType::Q4_0 | DType::Q8_0),
            Quantized::Decoded => dtype == DType::Q8_0,
        }
    }

    /// The type that weights of this type are decoded to when they are uploaded. `None` for types that stay as they
    /// are, and for types that this build cannot decode.
    pub fn decoded_type(&self, dtype: DType) -> Option<DType> {
        let is_decoded = dtype.is_quantized() && !self.reads_blocks(dtype) && dtype.decoder().is_some();
        is_decoded.then_some(DType::F16)
    }

    /// The chip of that family's name.
    pub fn from_name(name: &str) -> Option<&'static Chip> {
        CHIPS.iter().map(|(chip, _)| chip).find(|chip| chip.name == name)
    }

    /// The chip that the libraries call by this name.
    pub fn from_soc(soc: &str) -> Option<&'static Chip> {
        CHIPS.iter().find(|(_, is)| is(soc)).map(|(chip, _)| chip)
    }

    /// Names of all families.
    pub fn names() -> Vec<&'static str> {
        CHIPS.iter().map(|(chip, _)| chip.name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_libraries_tell_the_family() {
        let cases = [
            ("Ascend910B3", Some("910b")),
            ("Ascend910_9391", Some("a3")),
            ("Ascend910A", Some("910a")),
            ("Ascend910ProB", Some("910a")),
            ("Ascend910B", Some("910a")),
            ("Ascend310P3", Some("310p")),
            ("Ascend310B1", Some("310b")),
            ("Ascend910_9599", None),
            ("Ascend310", None),
        ];
        for (soc, name) in cases {
            assert_eq!(Chip::from_soc(soc).map(|chip| chip.name), name, "{soc}");
        }
    }
}
