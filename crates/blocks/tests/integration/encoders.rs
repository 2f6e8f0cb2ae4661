//! Encoders, with and without importance, against the bytes of ggml's C code: see `scripts/make_kquant_goldens.py`.

use trueup_blocks::DType;

/// Columns of a row.
const WIDTH: usize = 512;

macro_rules! golden {
    ($name:expr) => {
        &include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/blocks/ggml/", $name))[..]
    };
}

macro_rules! goldens {
    ($suffix:literal: $($dtype:ident = $name:literal),+ $(,)?) => {
        [$((DType::$dtype, golden!(concat!($name, $suffix)))),+]
    };
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let (elements, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty());
    elements.iter().map(|element| f32::from_le_bytes(*element)).collect()
}

fn weights() -> Vec<f32> {
    let weights = floats(golden!("weights.f32.bin"));
    assert!(weights.len() >= 10 * WIDTH && trueup_blocks::first_not_finite(&weights).is_none());
    weights
}

/// One line for each block that differs.
fn differing_blocks(dtype: DType, found: &[u8], expected: &[u8]) -> Vec<String> {
    assert_eq!(found.len(), expected.len(), "{dtype}: another number of bytes");
    let size = dtype.block_bytes();
    let blocks = found.chunks(size).zip(expected.chunks(size)).enumerate();
    let differing = blocks.filter(|(_, (found, expected))| found != expected);
    differing.map(|(i, (found, expected))| format!("{dtype} block {i}: {found:02x?} is not {expected:02x?}")).collect()
}

#[test]
fn bytes_without_importance_equal_the_reference() {
    let goldens = goldens![".bin": Q2K = "q2_k", Q3K = "q3_k", Q4K = "q4_k", Q5K = "q5_k", Q6K = "q6_k",
        Iq4Nl = "iq4_nl", Iq4Xs = "iq4_xs", Mxfp4 = "mxfp4", Nvfp4 = "nvfp4", Tq1_0 = "tq1_0", Tq2_0 = "tq2_0"];
    let mut faults = Vec::new();
    for (dtype, expected) in goldens {
        let mut found = vec![0xA5; expected.len()];
        (dtype.codec().unwrap().encode)(&weights(), &mut found);
        faults.extend(differing_blocks(dtype, &found, expected));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Each row has its own importance, as the matrices of a file have.
#[test]
fn bytes_with_importance_equal_the_reference() {
    let goldens = goldens![".weighted.bin": Q2K = "q2_k", Q3K = "q3_k", Q4K = "q4_k", Q5K = "q5_k", Q6K = "q6_k",
        Iq4Nl = "iq4_nl", Iq4Xs = "iq4_xs", Q4_0 = "q4_0", Q4_1 = "q4_1", Q5_0 = "q5_0", Q5_1 = "q5_1"];
    let (weights, importance) = (weights(), floats(golden!("importance.f32.bin")));
    let mut faults = Vec::new();
    for (dtype, expected) in goldens {
        let codec = dtype.codec().unwrap();
        assert!(codec.uses_importance, "{dtype}");
        let mut found = vec![0xA5; expected.len()];
        let row_bytes = dtype.row_bytes(WIDTH as u64).unwrap() as usize;
        let rows = weights.chunks(WIDTH).zip(importance.chunks(WIDTH));
        for ((weights, importance), bytes) in rows.zip(found.chunks_mut(row_bytes)) {
            (codec.encode_weighted)(weights, importance, bytes);
        }
        faults.extend(differing_blocks(dtype, &found, expected));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn decoded_values_equal_the_goldens_bit_for_bit() {
    let encoded =
        goldens![".bin": Iq4Xs = "iq4_xs", Mxfp4 = "mxfp4", Nvfp4 = "nvfp4", Tq1_0 = "tq1_0", Tq2_0 = "tq2_0"];
    let decoded = goldens![".dequant.f32.bin": Iq4Xs = "iq4_xs", Mxfp4 = "mxfp4", Nvfp4 = "nvfp4", Tq1_0 = "tq1_0",
        Tq2_0 = "tq2_0"];
    for ((dtype, encoded), (_, decoded)) in encoded.into_iter().zip(decoded) {
        let (expected, codec) = (floats(decoded), dtype.codec().unwrap());
        let encoded = &encoded[..dtype.row_bytes(expected.len() as u64).unwrap() as usize];
        let (mut found, mut exact) = (vec![f32::NAN; expected.len()], vec![f64::NAN; expected.len()]);
        (codec.decode)(encoded, &mut found);
        (codec.decode_exact)(encoded, &mut exact);
        for (i, ((found, exact), expected)) in found.iter().zip(&exact).zip(&expected).enumerate() {
            assert_eq!(found, expected, "{dtype} element {i}");
            assert_eq!(*exact, f64::from(*expected), "{dtype} element {i}");
        }
    }
}

/// Several rows at once are each encoded with the same importance, whole rows at a time.
#[test]
fn rows_do_not_depend_on_each_other() {
    let (weights, importance) = (weights(), floats(golden!("importance.f32.bin")));
    for dtype in DType::all().filter(|dtype| dtype.codec().is_some()) {
        let (codec, row_bytes) = (dtype.codec().unwrap(), dtype.row_bytes(WIDTH as u64).unwrap() as usize);
        let rows = weights.len() / WIDTH;
        let (mut plain, mut weighted) = (vec![0xA5; rows * row_bytes], vec![0xA5; rows * row_bytes]);
        (codec.encode)(&weights, &mut plain);
        (codec.encode_weighted)(&weights, &importance[..WIDTH], &mut weighted);
        for (number, row) in weights.chunks(WIDTH).enumerate() {
            let (mut alone, bytes) = (vec![0x5A; row_bytes], number * row_bytes..(number + 1) * row_bytes);
            (codec.encode)(row, &mut alone);
            assert_eq!(alone, plain[bytes.clone()], "{dtype} row {number}");
            (codec.encode_weighted)(row, &importance[..WIDTH], &mut alone);
            assert_eq!(alone, weighted[bytes], "{dtype} row {number} with importance");
        }
        assert_eq!(plain != weighted, codec.uses_importance, "{dtype}");
    }
}

#[test]
#[should_panic(expected = "the weights end inside a row")]
fn a_partial_row_is_refused() {
    (DType::Q4_0.codec().unwrap().encode_weighted)(&[1.0; 96], &[1.0; 64], &mut [0; 54]);
}
