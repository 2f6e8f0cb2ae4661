//! Functions whose portable code the compiler vectorizes well enough if it may use AVX2: the same code, compiled again
//! for AVX2.

compiled! { [target_feature(enable = "avx2")]:
    decode_q4_1(u8 => f32) = crate::q4_1::decode_scalar;
    decode_q5_0(u8 => f32) = crate::q5_0::decode_scalar;
    decode_q5_1(u8 => f32) = crate::q5_1::decode_scalar;
    decode_q8_1(u8 => f32) = crate::q8_1::decode_scalar;
}

compiled! { [target_feature(enable = "avx2,f16c")]:
    decode_q2_k(u8 => f32) = crate::q2_k::decode_parts;
    decode_q3_k(u8 => f32) = crate::q3_k::decode_parts;
    decode_q4_k(u8 => f32) = crate::q4_k::decode_parts;
    decode_q5_k(u8 => f32) = crate::q5_k::decode_parts;
    decode_q6_k(u8 => f32) = crate::q6_k::decode_parts;
    decode_iq4_xs(u8 => f32) = crate::iq4_xs::decode_parts;
    decode_mxfp4(u8 => f32) = crate::mxfp4::decode_parts;
    decode_nvfp4(u8 => f32) = crate::nvfp4::decode_parts;
    decode_tq1_0(u8 => f32) = crate::tq1_0::decode_parts;
    decode_tq2_0(u8 => f32) = crate::tq2_0::decode_parts;
    encode_mxfp4(f32 => u8) = crate::mxfp4::encode_parts;
    encode_nvfp4(f32 => u8) = crate::nvfp4::encode_parts;
    encode_tq1_0(f32 => u8) = crate::tq1_0::encode_parts;
    encode_tq2_0(f32 => u8) = crate::tq2_0::encode_parts;
}

searches! { [target_feature(enable = "avx2,f16c")], crate::avx2::lanes::Avx2 }
