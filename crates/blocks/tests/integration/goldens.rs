//! Bytes and decoded values of other software: see `fixtures/blocks/README.md` for the command that made them.

use trueup_blocks::DType;

macro_rules! golden {
    ($name:expr) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/blocks/", $name))
    };
}

/// A type, its encoded bytes, and the values read back from them.
struct Golden {
    dtype: DType,
    encoded: &'static [u8],
    decoded: &'static [u8],
}

macro_rules! goldens {
    ($($dtype:ident = $name:literal),+ $(,)?) => {
        [$(Golden {
            dtype: DType::$dtype,
            encoded: golden!(concat!($name, ".bin")),
            decoded: golden!(concat!($name, ".dequant.f32.bin")),
        }),+]
    };
}

fn goldens() -> [Golden; 8] {
    goldens![
        F16 = "f16",
        Bf16 = "bf16",
        Q4_0 = "q4_0",
        Q4_1 = "q4_1",
        Q5_0 = "q5_0",
        Q5_1 = "q5_1",
        Q8_0 = "q8_0",
        Q8_1 = "q8_1",
    ]
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let (elements, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty());
    elements.iter().map(|element| f32::from_le_bytes(*element)).collect()
}

fn encode(dtype: DType, weights: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0xA5; dtype.row_bytes(weights.len() as u64).unwrap() as usize];
    (dtype.codec().unwrap().encode)(weights, &mut bytes);
    bytes
}

/// One line for each block that differs.
fn differing_blocks(dtype: DType, found: &[u8], expected: &[u8], block_bytes: usize) -> Vec<String> {
    assert_eq!(found.len(), expected.len(), "{dtype}: another number of bytes");
    let blocks = found.chunks(block_bytes).zip(expected.chunks(block_bytes)).enumerate();
    blocks
        .filter(|(_, (a, b))| a != b)
        .map(|(i, (a, b))| format!("{dtype} block {i}: {a:02x?} is not {b:02x?}"))
        .collect()
}

#[test]
fn encoded_bytes_equal_the_goldens() {
    let input = floats(golden!("input.f32.bin"));
    assert!(input.len() >= 200 * 32 && trueup_blocks::first_not_finite(&input).is_none());
    let mut faults = Vec::new();
    for Golden { dtype, encoded, .. } in goldens() {
        faults.extend(differing_blocks(dtype, &encode(dtype, &input), encoded, dtype.block_bytes()));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn zeros_of_both_signs_equal_the_goldens() {
    let input = floats(golden!("signed_zero.f32.bin"));
    let cases: [(DType, &[u8]); 6] = [
        (DType::Q4_0, golden!("signed_zero.q4_0.bin")),
        (DType::Q4_1, golden!("signed_zero.q4_1.bin")),
        (DType::Q5_0, golden!("signed_zero.q5_0.bin")),
        (DType::Q5_1, golden!("signed_zero.q5_1.bin")),
        (DType::Q8_0, golden!("signed_zero.q8_0.bin")),
        (DType::Q8_1, golden!("signed_zero.q8_1.bin")),
    ];
    let mut faults = Vec::new();
    for (dtype, expected) in cases {
        faults.extend(differing_blocks(dtype, &encode(dtype, &input), expected, dtype.block_bytes()));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn decoded_values_equal_the_goldens_bit_for_bit() {
    let mut faults = Vec::new();
    for Golden { dtype, encoded, decoded } in goldens() {
        let mut weights = vec![f32::NAN; decoded.len() / 4];
        (dtype.codec().unwrap().decode)(encoded, &mut weights);
        let found: Vec<u8> = weights.iter().flat_map(|weight| weight.to_le_bytes()).collect();
        faults.extend(differing_blocks(dtype, &found, decoded, 4 * dtype.block_len()));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The golden values are f32; the exact ones round to them, and where the format has no sum they are the same numbers.
#[test]
fn exact_values_round_to_the_goldens() {
    for Golden { dtype, encoded, decoded } in goldens() {
        let expected = floats(decoded);
        let mut exact = vec![f64::NAN; expected.len()];
        (dtype.codec().unwrap().decode_exact)(encoded, &mut exact);
        let has_minimum = matches!(dtype, DType::Q4_1 | DType::Q5_1);
        for (i, (&exact, &expected)) in exact.iter().zip(&expected).enumerate() {
            assert_eq!(exact as f32, expected, "{dtype} element {i}");
            assert!(has_minimum || exact == f64::from(expected), "{dtype} element {i}: {exact} is not {expected}");
        }
    }
}
