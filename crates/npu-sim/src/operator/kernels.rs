//! Which kernels each chip has in CANN 8.1, and the types of their first operand, from its operator information files.
//!
//! `dyn` leaves the choice to the operator, `-` says that there is no such kernel. Pages of 2026 list some operators as
//! absent where these files have them (Add, Div, Neg and others on 310P); the files are followed here.

use crate::{
    chip::{Chip, Family},
    element::Type,
};
use std::{collections::HashMap, sync::LazyLock};

/// A set of types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Types(u32);

impl Types {
    /// Every type but int4, which only operators that name it take.
    pub fn common() -> Self {
        Type::ALL.iter().filter(|&&ty| ty != Type::I4).fold(Self(0), |set, &ty| set.with(ty))
    }

    fn with(self, ty: Type) -> Self {
        Self(self.0 | 1 << (ty as u32))
    }

    /// The set of a list such as `f16,f32`; names that are no types of ours are passed over.
    pub fn of(list: &str) -> Self {
        let named = |name: &str| Type::ALL.iter().copied().find(|ty| ty.name() == name);
        list.split(',').filter_map(named).fold(Self(0), Self::with)
    }

    /// Whether a type is in it.
    pub fn contains(self, ty: Type) -> bool {
        self.0 & 1 << (ty as u32) != 0
    }

    /// What is in both.
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Without one type.
    pub fn without(self, ty: Type) -> Self {
        Self(self.0 & !(1 << (ty as u32)))
    }

    /// The names.
    pub fn names(self) -> String {
        let names: Vec<String> = Type::ALL.iter().filter(|&&ty| self.contains(ty)).map(Type::to_string).collect();
        names.join(", ")
    }
}

/// What a chip's files say of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    /// It is not there.
    Absent,
    /// It is, and the operator chooses.
    Open,
    /// It is, for these types.
    Of(Types),
}

/// Kernel; 910B and A3; 310P; 310B; 910A.
const TABLE: &[(&str, [&str; 4])] = &[
    ("Add", ["dyn", "dyn", "dyn", "dyn"]),
    (
        "Sub",
        [
            "bf16,f16,f32,i32,i64,u8,i8,b",
            "f16,f32,i32,i64,u8,i8,b",
            "f16,f32,i32,i64,u8,i8,b",
            "f16,f32,i32,i64,u8,i8,b",
        ],
    ),
    ("Mul", ["dyn", "dyn", "dyn", "dyn"]),
    ("Muls", ["bf16,f16,f32,i32,i64", "f16,f32,i32,i64", "f16,f32,i32,i64", "f16,f32,i32,i64"]),
    ("RealDiv", ["dyn", "dyn", "dyn", "dyn"]),
    ("Axpy", ["dyn", "dyn", "dyn", "dyn"]),
    ("Pow", ["bf16,f16,f32,i32,i8,u8", "f16,f32,i32,i8,u8", "f16,f32,i32,i8,u8", "f16,f32,i32,i8,u8"]),
    ("Exp", ["f16,f32,bf16", "f16,f32", "f16,f32", "f16,f32"]),
    ("Cos", ["dyn", "dyn", "dyn", "dyn"]),
    ("Sin", ["f16,f32,bf16", "f16,f32", "f16,f32", "f16,f32"]),
    ("Sqrt", ["f16,f32,bf16", "f16,f32", "f16,f32", "f16,f32"]),
    ("Rsqrt", ["f16,f32,bf16", "f16,f32", "f16,f32", "f16,f32"]),
    ("Neg", ["bf16,f16,f32,i32,i64,i8", "f16,f32,i32,i8", "f16,f32,i32,i8", "f16,f32,i32,i8"]),
    ("Log", ["bf16,f16,f32", "f16,f32", "f16,f32", "f16,f32"]),
    ("Maximum", ["bf16,f16,f32,i32,i8,i64", "f16,f32,i32,i8,i64", "f16,f32,i32,i64,i8", "f16,f32,i32,i8,i64"]),
    ("ClipByValueV2", ["bf16,f16,f32,i32,i64", "f16,f32,i32,i64", "f16,f32,i32,i64", "f16,f32,i32,i64"]),
    ("ThresholdV2", ["f16,f32,i8,i32,u8,i64,bf16", "f16,f32,i8,i32,u8", "-", "f16,f32,i8,i32,u8,i64"]),
    ("Swish", ["f16,f32,bf16", "f16,f32", "f16,f32", "f16,f32"]),
    ("Gelu", ["bf16,f16,f32", "f16,f32", "f16,f32", "f16,f32"]),
    ("GeluV2", ["bf16,f16,f32", "f16,f32", "f16,f32", "f16,f32"]),
    ("Relu", ["f16,f32,i32,i8,bf16,i64", "f16,f32,i32,i8,i64", "f16,f32,i32,i8,i64", "f16,f32,i32,i8,i64"]),
    ("LeakyRelu", ["f16,f32,bf16", "f16,f32,i8", "f16,f32", "f16,f32"]),
    ("Sigmoid", ["bf16,f16,f32", "f16,f32", "f16,f32", "f16,f32"]),
    ("Tanh", ["f16,f32,bf16", "f16,f32", "f16,f32", "f16,f32"]),
    ("HardSwish", ["f16,f32,bf16", "f16,f32", "f16,f32", "f16,f32"]),
    ("HardSigmoid", ["f16,f32,i32,bf16", "f16,f32,i32", "f16,f32,i32", "f16,f32,i32"]),
    ("Elu", ["f16,f32,bf16", "f16,f32", "f16,f32", "f16,f32"]),
    ("SoftplusV2", ["f16,f32,bf16", "f16,f32", "f16,f32", "f16,f32"]),
    ("SwiGlu", ["f16,f32,bf16", "f16,f32", "-", "-"]),
    ("GeGluV2", ["f16,bf16,f32", "f16,f32", "-", "-"]),
    ("RmsNorm", ["f16,bf16,f32", "f16,f32", "-", "f16,f32"]),
    ("AddRmsNorm", ["f16,f32,bf16", "f16,f32", "-", "-"]),
    ("LayerNormV3", ["dyn", "dyn", "dyn", "dyn"]),
    ("LayerNormV4", ["f32,f16,bf16", "f16", "-", "-"]),
    ("GroupNorm", ["dyn", "dyn", "dyn", "dyn"]),
    ("GroupNormSilu", ["f16,f32,bf16", "f16,f32", "-", "-"]),
    ("LpNormV2", ["f16,f32,bf16", "f16,f32", "f16,f32,bf16", "f16,f32"]),
    ("SoftmaxV2", ["dyn", "dyn", "dyn", "dyn"]),
    ("ReduceSum", ["f16,f32,i32,i64,bf16", "f16,f32,i64", "f16,f32,i32,i64", "f16,f32,i32"]),
    ("ReduceMean", ["f16,f32,bf16", "f16,f32", "f16,f32", "f16,f32"]),
    ("Cumsum", ["i32,f32,f16,bf16", "i32,f32,f16", "i32,f32,f16", "i32,f32,f16"]),
    ("ArgMaxV2", ["f16,f32,i64,bf16,i32", "f16,f32", "f16,f32,i32", "f16,f32,i64"]),
    ("Sort", ["dyn", "dyn", "dyn", "dyn"]),
    ("TopKV2", ["f16,f32,bf16", "f16,f32", "f16,f32", "f16"]),
    ("Range", ["i32,f32,bf16,i64,f16,f64", "i32,f32,i64,f16,f64", "i32,f32,f16", "i32,f32,i64,f16,f64"]),
    ("Fill", ["i32,i64", "i32,i64", "i32,i64", "i32,i64"]),
    (
        "Cast",
        [
            "f16,f32,i32,i8,u8,b,i64,bf16,i16,u32,u16",
            "f16,f32,i32,i8,u8,b,i64,i16",
            "f16,f32,i32,i8,u8,b,i64",
            "f16,f32,i32,i8,u8,b,i64",
        ],
    ),
    (
        "Transpose",
        [
            "f16,f32,i8,i16,i32,i64,u8,u16,u32,u64,b,bf16",
            "f16,f32,i8,i16,i32,i64,u8,u16,u32,u64,b",
            "f16,f32,i8,i16,i32,i64,u8,u16,u32,u64,b",
            "f16,f32,i8,i16,i32,i64,u8,u16,u32,u64,b",
        ],
    ),
    (
        "ViewCopy",
        [
            "bf16,u8,i8,b,f32,i32,u32,i16,f16,u16,i64,u64",
            "u8,i8,b,f32,i32,u32,i16,f16,u16,i64,u64",
            "u8,i8,b,f32,i32,u32,i16,f16,u16,i64,u64",
            "u8,i8,b,f32,i32,u32,i16,f16,u16,i64,u64",
        ],
    ),
    (
        "TensorMove",
        [
            "f64,f16,f32,i32,u32,i8,i16,u16,u8,b,i64,u64,bf16",
            "f64,f16,f32,i32,u32,i8,i16,u16,u8,b,i64,u64",
            "f64,f16,f32,i32,u32,i8,i16,u16,u8,b,i64,u64",
            "f64,f16,f32,i32,u32,i8,i16,u16,u8,b,i64,u64",
        ],
    ),
    ("ConcatD", ["dyn", "dyn", "dyn", "dyn"]),
    (
        "Tile",
        [
            "i32,f32,f16,b,i64,bf16,i8,u8,i16,u16,u32,u64",
            "i32,f32,f16,b,i64,i8,u8,i16,u16,u32,u64",
            "i32,f32,f16,b,i64",
            "i32,f32,f16,b,i64",
        ],
    ),
    (
        "RepeatInterleave",
        [
            "f32,f16,i8,i16,i32,i64,u8,u16,u32,u64,b,bf16",
            "f32,f16,i8,i16,i32,i64,u8,u16,u32,u64,b",
            "f32,f16,i8,i16,i32,i64,u8,u16,u32,u64,b",
            "f32,f16,i8,i16,i32,i64,u8,u16,u32,u64,b",
        ],
    ),
    ("Roll", ["f32,f16,i32,u32,i8,u8,bf16,i64", "f32,f16,i32,u32,i8,u8,i64", "-", "f32,f16,i32,u32,i8,u8,i64"]),
    (
        "StridedSlice",
        [
            "f16,f32,i32,u8,b,i8,i64,i16,u16,u32,u64,bf16",
            "f16,f32,i32,u8,b,i8,i64,i16,u16,u32,u64",
            "f16,f32,i32,u8,b,i8,i64,i16,u16,u32,u64,bf16",
            "f16,f32,i32,u8,b,i8,i64,i16,u16,u32,u64",
        ],
    ),
    ("PadV3", ["dyn", "dyn", "dyn", "dyn"]),
    (
        "Tril",
        [
            "bf16,f16,f32,f64,u8,i8,u16,i16,u32,i32,u64,i64,b",
            "f16,f32,f64,u8,i8,u16,i16,u32,i32,u64,i64,b",
            "f16,f32,f64,u8,i8,u16,i16,u32,i32,u64,i64,b",
            "f16,f32,f64,u8,i8,u16,i16,u32,i32,u64,i64,b",
        ],
    ),
    (
        "Triu",
        [
            "bf16,f16,f32,f64,u8,i8,u16,i16,u32,i32,u64,i64,b",
            "f16,f32,f64,u8,i8,u16,i16,u32,i32,u64,i64,b",
            "f16,f32,f64,u8,i8,u16,i16,u32,i32,u64,i64,b",
            "f16,f32,f64,u8,i8,u16,i16,u32,i32,u64,i64,b",
        ],
    ),
    ("Im2col", ["dyn", "dyn", "f16,i8,u8", "f16,i8,u8"]),
    (
        "GatherV2",
        [
            "bf16,f16,f32,i8,u8,i32,u32,i16,u16,i64,u64,b",
            "f16,f32,i8,u8,i32,u32,i16,u16,i64,u64,b",
            "f16,f32,i8,u8,i32,u32,i16,u16,i64,u64,b",
            "f16,f32,i8,u8,i32,u32,i16,u16,i64,u64,b",
        ],
    ),
    ("GatherV3", ["bf16,f16,f32,i8,u8,i32,u32,i16,u16,i64,u64,b", "-", "-", "-"]),
    ("ScatterUpdate", ["f16,f32,bf16,i32,i64", "f16,f32,i32", "f16,f32,i32", "f16,f32,i32"]),
    ("ScatterElementsV2", ["f32,f16,i32,u8,i8,bf16", "-", "-", "-"]),
    ("ScatterNdUpdate", ["f16,f32,b,bf16,i64,i8", "f16,f32,b", "f16,f32,b", "f16,f32,b"]),
    ("IndexFillD", ["f16,f32,i32,i64,b,bf16", "f16,f32,i32,i64,b", "f16,f32,i32", "f16,f32,i32,i64,b"]),
    (
        "IndexPutV2",
        [
            "f32,u8,i64,b,f16,i32,i8,bf16",
            "f32,u8,i64,b,f16,i32,i8",
            "f32,u8,i64,b,f16,i32,i8",
            "f32,u8,i64,b,f16,i32,i8",
        ],
    ),
    ("SelectV2", ["b", "b", "b", "b"]),
    ("MaskedFill", ["bf16,f16,f32,i8,i32,b", "f16,f32,i8,i32,b", "f16,f32,i8,i32,b", "f16,f32,i8,i32,b"]),
    (
        "Equal",
        [
            "bf16,f16,f32,i32,i8,u8,b,i64",
            "f16,f32,i64,u64,i32,i8,u8,b",
            "f16,f32,i32,i64,i8,u8,b",
            "f16,f32,i64,u64,i32,i8,u8,b,u32",
        ],
    ),
    (
        "Greater",
        ["f16,f32,i32,i8,u8,i64,bf16", "f16,f32,i32,i8,u8,i64", "f16,f32,i32,i64,i8,u8", "f16,f32,i32,i8,u8,i64"],
    ),
    ("AvgPoolV2", ["f16,i8", "f16,i8", "f16,i8", "f16,i8"]),
    ("MaxPoolV3", ["f16,f32", "f16", "f16", "f16"]),
    ("ResizeNearestNeighborV2", ["f16,f32,bf16", "f16,f32", "f16,f32", "f16,f32"]),
    ("Conv2D", ["dyn", "dyn", "dyn", "dyn"]),
    ("MatMulV2", ["dyn", "dyn", "dyn", "dyn"]),
    ("MatMulV3", ["f16,f32,bf16", "f16", "-", "-"]),
    ("BatchMatMulV2", ["dyn", "dyn", "dyn", "dyn"]),
    ("BatchMatMulV3", ["f16,f32,bf16", "f16", "-", "-"]),
    (
        "TransData",
        [
            "u16,f32,f16,bf16,u32,i32,i16,i64,i8,u64,u8",
            "f32,f16,u32,i32,u16,i16,i64,i8,u64,u8",
            "f32,f16,bf16,u32,i32,u16,i16,i64,i8,u64,u8",
            "f32,f16,bf16,u32,i32,u16,i16,i64,i8,u64,u8",
        ],
    ),
    ("WeightQuantBatchMatmulV2", ["f16,bf16", "f16", "-", "-"]),
    ("QuantBatchMatmulV3", ["i8,i4", "i8", "-", "-"]),
    ("DynamicQuant", ["f16,bf16", "-", "-", "-"]),
    ("AscendQuantV2", ["f16,f32,bf16", "f16,f32", "-", "-"]),
    ("AscendAntiQuant", ["dyn", "dyn", "i8", "i8"]),
    ("FusedInferAttentionScore", ["f16,bf16,i8", "-", "-", "-"]),
    ("PromptFlashAttention", ["f16,bf16,i8", "f16", "-", "-"]),
    ("IncreFlashAttention", ["f16,bf16", "f16", "-", "-"]),
    ("FlashAttentionScore", ["f16,bf16,f32", "-", "-", "-"]),
    ("RotaryPositionEmbedding", ["f16,f32,bf16", "-", "-", "-"]),
    ("ApplyRotaryPosEmb", ["f16,f32,bf16", "f16,f32", "-", "f16,f32"]),
    ("RopeWithSinCosCache", ["i64", "-", "-", "-"]),
    ("GroupedMatmul", ["f16,bf16,i8,f32", "f16", "-", "-"]),
    ("MoeGatingTopKSoftmax", ["f16,f32,bf16", "-", "-", "-"]),
    ("MoeInitRoutingV2", ["f16,bf16,f32", "-", "-", "-"]),
    ("MoeFinalizeRoutingV2", ["f16,f32,bf16", "-", "-", "-"]),
];

static PARSED: LazyLock<HashMap<&'static str, [Listed; 4]>> = LazyLock::new(|| {
    let listed = |cell: &str| match cell {
        "-" => Listed::Absent,
        "dyn" => Listed::Open,
        list => Listed::Of(Types::of(list)),
    };
    TABLE.iter().map(|(name, cells)| (*name, cells.map(listed))).collect()
});

/// What the files say of a kernel on a chip; [`Listed::Open`] for a name that they do not hold.
pub fn listed(kernel: &str, chip: &Chip) -> Listed {
    let column = match chip.family {
        Family::Ascend910b | Family::A3 => 0,
        Family::Ascend310p => 1,
        Family::Ascend310b => 2,
        Family::Ascend910a => 3,
    };
    PARSED.get(kernel).map_or(Listed::Open, |columns| columns[column])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chip::Chip;

    #[test]
    fn cells_of_the_table() {
        let of = |kernel, chip| listed(kernel, Chip::named(chip).expect("the chip is there"));
        assert_eq!(of("Swish", "910b"), Listed::Of(Types::of("f16,f32,bf16")));
        assert_eq!(of("Swish", "310p"), Listed::Of(Types::of("f16,f32")));
        assert_eq!(of("RmsNorm", "310b"), Listed::Absent);
        assert_eq!(of("Add", "910a"), Listed::Open);
        assert_eq!(of("FusedInferAttentionScore", "310p"), Listed::Absent);
    }

    #[test]
    fn each_type_of_the_table_is_known() {
        let cells = TABLE.iter().flat_map(|(name, cells)| cells.iter().map(move |cell| (name, cell)));
        for (name, cell) in cells.filter(|(_, cell)| !["-", "dyn"].contains(*cell)) {
            let known = cell
                .split(',')
                .all(|ty| Type::ALL.iter().any(|listed| listed.name() == ty || (ty == "i4" && *listed == Type::I4)));
            assert!(known, "{name}: {cell}");
        }
    }
}
