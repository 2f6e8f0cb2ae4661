//! Encoding whose portable code the compiler vectorizes well enough when it may use AVX-512: the same code, compiled
//! again.

compiled! { [target_feature(enable = "avx2,avx512f,avx512dq,avx512bw,avx512vl")]:
    encode_mxfp4(f32 => u8) = crate::mxfp4::encode_parts;
    encode_nvfp4(f32 => u8) = crate::nvfp4::encode_parts;
    encode_tq1_0(f32 => u8) = crate::tq1_0::encode_parts;
    encode_tq2_0(f32 => u8) = crate::tq2_0::encode_parts;
}

searches! { [target_feature(enable = "avx2,f16c,avx512f,avx512dq,avx512bw,avx512vl")], crate::avx512::lanes::Avx512 }
