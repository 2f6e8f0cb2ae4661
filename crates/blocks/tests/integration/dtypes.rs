//! The table of types against the `gguf` package 0.19.0:
//!
//! ```text
//! python -c "from gguf import GGMLQuantizationType as T, GGML_QUANT_SIZES as S; print([(t.name.lower(), t.value, *S[t]) for t in T])"
//! ```
//!
//! Two lines are not the package's: it gives `q8_1` 40 bytes, an older layout (36 in ggml's `block_q8_1`, by
//! `ggml_type_size(9)`), and does not know `q2_0` (`ggml_type_name`, `ggml_blck_size` and `ggml_type_size` of 42).

use trueup_blocks::DType;

#[rustfmt::skip]
const TYPES: [(&str, u32, usize, usize); 35] = [
    ("f32", 0, 1, 4),
    ("f16", 1, 1, 2),
    ("q4_0", 2, 32, 18),
    ("q4_1", 3, 32, 20),
    ("q5_0", 6, 32, 22),
    ("q5_1", 7, 32, 24),
    ("q8_0", 8, 32, 34),
    ("q8_1", 9, 32, 36),
    ("q2_k", 10, 256, 84),
    ("q3_k", 11, 256, 110),
    ("q4_k", 12, 256, 144),
    ("q5_k", 13, 256, 176),
    ("q6_k", 14, 256, 210),
    ("q8_k", 15, 256, 292),
    ("iq2_xxs", 16, 256, 66),
    ("iq2_xs", 17, 256, 74),
    ("iq3_xxs", 18, 256, 98),
    ("iq1_s", 19, 256, 50),
    ("iq4_nl", 20, 32, 18),
    ("iq3_s", 21, 256, 110),
    ("iq2_s", 22, 256, 82),
    ("iq4_xs", 23, 256, 136),
    ("i8", 24, 1, 1),
    ("i16", 25, 1, 2),
    ("i32", 26, 1, 4),
    ("i64", 27, 1, 8),
    ("f64", 28, 1, 8),
    ("iq1_m", 29, 256, 56),
    ("bf16", 30, 1, 2),
    ("tq1_0", 34, 256, 54),
    ("tq2_0", 35, 256, 66),
    ("mxfp4", 39, 32, 17),
    ("nvfp4", 40, 64, 36),
    ("q1_0", 41, 128, 18),
    ("q2_0", 42, 64, 18),
];

#[test]
fn names_ids_and_sizes_are_the_formats_own() {
    let found: Vec<_> = DType::all().map(|t| (t.name(), t.gguf_id(), t.block_len(), t.block_bytes())).collect();
    assert_eq!(found, TYPES);
}

#[test]
fn a_type_is_found_by_its_id_and_its_name() {
    for dtype in DType::all() {
        assert_eq!(DType::from_gguf_id(dtype.gguf_id()), Some(dtype));
        assert_eq!(DType::from_name(dtype.name()), Some(dtype));
        assert_eq!(DType::from_name(&dtype.name().to_uppercase()), Some(dtype));
        assert_eq!(dtype.to_string(), dtype.name());
    }
    for retired in [4, 5, 31, 32, 33, 36, 37, 38, 43, u32::MAX] {
        assert_eq!(DType::from_gguf_id(retired), None, "id {retired}");
    }
    assert_eq!(DType::from_name("q4_2"), None);
}

#[test]
fn floats_are_the_four_types_of_floating_point_numbers() {
    let floats: Vec<_> = DType::all().filter(|dtype| dtype.is_float()).map(DType::name).collect();
    assert_eq!(floats, ["f32", "f16", "f64", "bf16"]);
}

#[test]
fn plain_floats_are_read_exactly() {
    let numbers = [0.1_f64, -3.0e-40, f64::from(f32::MAX), f64::MAX, 5e-324];
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let mut exact = [0.0; 5];
    (DType::F64.codec().unwrap().decode_exact)(&bytes, &mut exact);
    assert_eq!(exact, numbers);
    let narrow = numbers.map(|number| number as f32);
    let bytes: Vec<u8> = narrow.iter().flat_map(|number| number.to_le_bytes()).collect();
    (DType::F32.codec().unwrap().decode_exact)(&bytes, &mut exact);
    assert_eq!(exact, narrow.map(f64::from));
}

#[test]
fn row_sizes_refuse_partial_blocks_and_overflow() {
    let cases = [
        (DType::Q4_0, 64, Some(36)),
        (DType::Q4_0, 0, Some(0)),
        (DType::Q4_0, 33, None),
        (DType::Q6K, 256, Some(210)),
        (DType::F64, u64::MAX / 8, Some(u64::MAX / 8 * 8)),
        (DType::F64, u64::MAX / 8 + 1, None),
        (DType::Q8_0, u64::MAX / 32 * 32, None),
    ];
    for (dtype, len, expected) in cases {
        assert_eq!(dtype.row_bytes(len), expected, "{dtype} row of {len}");
    }
    assert_eq!(DType::Q4_0.bits_per_weight(), 4.5);
    assert_eq!(DType::Bf16.bits_per_weight(), 16.0);
}
