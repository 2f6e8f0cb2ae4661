//! Decoding whose portable code the compiler vectorises well enough when it may use AVX2: the same code, compiled once
//! more.

macro_rules! compiled {
    ($features:literal: $($name:ident($source:ty => $target:ty) = $scalar:path;)+) => {
        $(
            #[target_feature(enable = $features)]
            pub(crate) fn $name(source: &[$source], target: &mut [$target]) {
                $scalar(source, target);
            }
        )+
    };
}

compiled! { "avx2":
    decode_q4_1(u8 => f32) = crate::q4_1::decode_scalar;
    decode_q5_0(u8 => f32) = crate::q5_0::decode_scalar;
    decode_q5_1(u8 => f32) = crate::q5_1::decode_scalar;
    decode_q8_1(u8 => f32) = crate::q8_1::decode_scalar;
}

compiled! { "avx2,f16c":
    decode_q2_k(u8 => f32) = crate::q2_k::decode_parts;
    decode_q3_k(u8 => f32) = crate::q3_k::decode_parts;
    decode_q4_k(u8 => f32) = crate::q4_k::decode_parts;
    decode_q5_k(u8 => f32) = crate::q5_k::decode_parts;
    decode_q6_k(u8 => f32) = crate::q6_k::decode_parts;
}
