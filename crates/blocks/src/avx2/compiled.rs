//! Decoding whose scalar rule the compiler vectorises well enough when it may use AVX2: the same code, compiled once more.

macro_rules! compiled {
    ($($name:ident($source:ty => $target:ty) = $scalar:path;)+) => {
        $(
            #[target_feature(enable = "avx2")]
            pub(crate) fn $name(source: &[$source], target: &mut [$target]) {
                $scalar(source, target);
            }
        )+
    };
}

compiled! {
    decode_q4_1(u8 => f32) = crate::q4_1::decode_scalar;
    decode_q5_0(u8 => f32) = crate::q5_0::decode_scalar;
    decode_q5_1(u8 => f32) = crate::q5_1::decode_scalar;
    decode_q8_1(u8 => f32) = crate::q8_1::decode_scalar;
}
