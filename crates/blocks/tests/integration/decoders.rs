//! Formats whose blocks the `gguf` package cannot write, against the values that other software reads: see
//! `scripts/make_decode_goldens.py`.

use trueup_blocks::DType;

macro_rules! goldens {
    ($($dtype:ident = $name:literal),+ $(,)?) => {
        [$((
            DType::$dtype,
            &include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/blocks/", $name, ".bin"))[..],
            &include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/blocks/", $name, ".dequant.f32.bin"))[..],
        )),+]
    };
}

/// A type, encoded bytes and the values read from them.
type Golden = (DType, &'static [u8], &'static [u8]);

fn goldens() -> [Golden; 6] {
    goldens![Q2K = "q2_k", Q3K = "q3_k", Q4K = "q4_k", Q5K = "q5_k", Q6K = "q6_k", Iq4Nl = "iq4_nl"]
}

#[test]
fn decoded_values_equal_the_goldens_bit_for_bit() {
    for (dtype, encoded, decoded) in goldens() {
        let expected: Vec<f32> = decoded.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        assert!(expected.len() >= 2048 && encoded.len() == dtype.row_bytes(expected.len() as u64).unwrap() as usize);
        let decoder = dtype.decoder().unwrap();
        let mut found = vec![f32::NAN; expected.len()];
        (decoder.decode)(encoded, &mut found);
        let mut exact = vec![f64::NAN; expected.len()];
        (decoder.decode_exact)(encoded, &mut exact);
        for (i, ((found, exact), expected)) in found.iter().zip(&exact).zip(&expected).enumerate() {
            assert_eq!(found, expected, "{dtype} element {i}");
            assert_eq!(*exact as f32, *expected, "{dtype} element {i}, exact {exact}");
        }
    }
}

#[test]
fn a_decoder_is_that_of_the_codec() {
    for dtype in DType::all() {
        match (dtype.codec(), dtype.decoder()) {
            (Some(codec), Some(decoder)) => assert_eq!((codec.dtype, decoder.dtype), (dtype, dtype)),
            (Some(_), None) => panic!("{dtype} can be written and not read"),
            (None, decoder) => assert!(decoder.is_none_or(|decoder| decoder.dtype == dtype), "{dtype}"),
        }
    }
    assert!(DType::Iq1S.decoder().is_none() && DType::I32.decoder().is_none());
}
