//! Blocks at the edges of the formats, with the bytes that ggml's own C rule writes for them.
//!
//! Made with the library of llama-cpp-python 0.3.36 (ggml 0.25.3), for each TYPE and WEIGHTS of the table:
//!
//! ```text
//! python -c "import ctypes, numpy; c = ctypes.CDLL('.../llama_cpp/lib/libggml-base.so'); x = numpy.array(WEIGHTS, 'f4'); \
//!     b = numpy.zeros(BYTES, 'u1'); c.quantize_row_TYPE_ref(x.ctypes.data_as(ctypes.c_void_p), \
//!     b.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(32)); print(b.tobytes().hex())"
//! ```

use trueup_blocks::DType;

/// Two weights and thirty zeros.
fn pair(first: f32, second: f32) -> [f32; 32] {
    let mut weights = [0.0; 32];
    weights[..2].copy_from_slice(&[first, second]);
    weights
}

/// The bytes as hexadecimal digits; a last `..` stands for the byte before it, repeated to the end of the block.
fn bytes(dtype: DType, digits: &str) -> Vec<u8> {
    let (written, repeated) = digits.strip_suffix("..").map_or((digits, false), |written| (written, true));
    let byte = |at: usize| u8::from_str_radix(&written[at..at + 2], 16).unwrap();
    let mut bytes: Vec<u8> = (0..written.len()).step_by(2).map(byte).collect();
    if repeated {
        bytes.resize(dtype.block_bytes(), *bytes.last().unwrap());
    }
    bytes
}

#[test]
fn edge_cases_equal_the_published_rule() {
    #[rustfmt::skip]
    let cases: [(DType, [f32; 32], &str); 60] = [
        (DType::Q4_0, [0.0; 32], "008088.."),
        (DType::Q4_0, [-0.0; 32], "008088.."),
        (DType::Q4_0, [-1.0; 32], "003000.."),
        (DType::Q4_0, [1e-39; 32], "008000.."),
        (DType::Q4_0, [1e-44; 32], "008000.."),
        (DType::Q4_0, [1e-6; 32], "028000.."),
        (DType::Q4_0, [f32::MAX; 32], "00fc00.."),
        (DType::Q4_0, pair(-1.0, 1.0), "0030808f88.."),
        (DType::Q4_0, pair(1.0, -1.0), "00b0808f88.."),
        (DType::Q4_0, pair(f32::MAX, f32::MIN), "00fc808f88.."),
        (DType::Q4_1, [0.0; 32], "00.."),
        (DType::Q4_1, [-0.0; 32], "0000008000.."),
        (DType::Q4_1, [-1.0; 32], "000000bc00.."),
        (DType::Q4_1, [1e-39; 32], "00.."),
        (DType::Q4_1, [1e-44; 32], "00.."),
        (DType::Q4_1, [1e-6; 32], "00001100.."),
        (DType::Q4_1, [f32::MAX; 32], "0000007c00.."),
        (DType::Q4_1, pair(-1.0, 1.0), "443000bc707f77.."),
        (DType::Q4_1, pair(1.0, -1.0), "443000bc7f7077.."),
        (DType::Q4_1, pair(f32::MAX, f32::MIN), "007c00fc00.."),
        (DType::Q5_0, [0.0; 32], "0080ffffffff00.."),
        (DType::Q5_0, [-0.0; 32], "0080ffffffff00.."),
        (DType::Q5_0, [-1.0; 32], "002c00.."),
        (DType::Q5_0, [1e-39; 32], "008000.."),
        (DType::Q5_0, [1e-44; 32], "0080ffffffff00.."),
        (DType::Q5_0, [1e-6; 32], "018000.."),
        (DType::Q5_0, [f32::MAX; 32], "00fc00.."),
        (DType::Q5_0, pair(-1.0, 1.0), "002cfeffffff000f00.."),
        (DType::Q5_0, pair(1.0, -1.0), "00acfeffffff000f00.."),
        (DType::Q5_0, pair(f32::MAX, f32::MIN), "00fcfeffffff000f00.."),
        (DType::Q5_1, [0.0; 32], "00.."),
        (DType::Q5_1, [-0.0; 32], "0000008000.."),
        (DType::Q5_1, [-1.0; 32], "000000bc00.."),
        (DType::Q5_1, [1e-39; 32], "00.."),
        (DType::Q5_1, [1e-44; 32], "00.."),
        (DType::Q5_1, [1e-6; 32], "00001100.."),
        (DType::Q5_1, [f32::MAX; 32], "0000007c00.."),
        (DType::Q5_1, pair(-1.0, 1.0), "212c00bcfeffffff000f00.."),
        (DType::Q5_1, pair(1.0, -1.0), "212c00bcfdffffff0f00.."),
        (DType::Q5_1, pair(f32::MAX, f32::MIN), "007c00fc00.."),
        (DType::Q8_0, [0.0; 32], "00.."),
        (DType::Q8_0, [-0.0; 32], "00.."),
        (DType::Q8_0, [-1.0; 32], "082081.."),
        (DType::Q8_0, [1e-39; 32], "00.."),
        (DType::Q8_0, [1e-44; 32], "00.."),
        (DType::Q8_0, [1e-6; 32], "00007f.."),
        (DType::Q8_0, [f32::MAX; 32], "007c7f.."),
        (DType::Q8_0, pair(-1.0, 1.0), "0820817f00.."),
        (DType::Q8_0, pair(1.0, -1.0), "08207f8100.."),
        (DType::Q8_0, pair(f32::MAX, f32::MIN), "007c7f8100.."),
        (DType::Q8_1, [0.0; 32], "00.."),
        (DType::Q8_1, [-0.0; 32], "00.."),
        (DType::Q8_1, [-1.0; 32], "082000d081.."),
        (DType::Q8_1, [1e-39; 32], "00.."),
        (DType::Q8_1, [1e-44; 32], "00.."),
        (DType::Q8_1, [1e-6; 32], "000019027f.."),
        (DType::Q8_1, [f32::MAX; 32], "007c007c7f.."),
        (DType::Q8_1, pair(-1.0, 1.0), "08200000817f00.."),
        (DType::Q8_1, pair(1.0, -1.0), "082000007f8100.."),
        (DType::Q8_1, pair(f32::MAX, f32::MIN), "007c00007f8100.."),
    ];
    let mut faults = Vec::new();
    for (dtype, weights, digits) in cases {
        let mut found = vec![0xA5; dtype.block_bytes()];
        (dtype.codec().unwrap().encode)(&weights, &mut found);
        if found != bytes(dtype, digits) {
            faults.push(format!("{dtype} of {:?} ...: {found:02x?} is not {digits}", &weights[..2]));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
