//! Functions whose portable code the compiler vectorises well enough when it may use AVX2: the same code, compiled once
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
    ($features:literal: $($name:ident(weights, importance) = $lanes:path;)+) => {
        $(
            #[target_feature(enable = $features)]
            pub(crate) fn $name(weights: &[f32], importance: &[f32], bytes: &mut [u8]) {
                $lanes(weights, importance, bytes);
            }
        )+
    };
}

/// The searches with a group in each lane of a vector.
macro_rules! searches {
    ($features:literal, $Vector:ty) => {
        $crate::avx2::compiled::compiled! { $features:
            encode_q2_k(f32 => u8) = $crate::q2_k::encode_lanes::<$Vector>;
            encode_q3_k(f32 => u8) = $crate::q3_k::encode_lanes::<$Vector>;
            encode_q4_k(f32 => u8) = $crate::q4_k::encode_lanes::<$Vector>;
            encode_q5_k(f32 => u8) = $crate::q5_k::encode_lanes::<$Vector>;
            encode_q6_k(f32 => u8) = $crate::q6_k::encode_lanes::<$Vector>;
            encode_iq4_nl(f32 => u8) = $crate::iq4_nl::encode_lanes::<$Vector>;
            encode_iq4_xs(f32 => u8) = $crate::iq4_xs::encode_lanes::<$Vector>;
        }
        $crate::avx2::compiled::compiled! { $features:
            encode_q2_k_weighted(weights, importance) = $crate::q2_k::encode_weighted_lanes::<$Vector>;
            encode_q3_k_weighted(weights, importance) = $crate::q3_k::encode_weighted_lanes::<$Vector>;
            encode_q4_k_weighted(weights, importance) = $crate::q4_k::encode_weighted_lanes::<$Vector>;
            encode_q5_k_weighted(weights, importance) = $crate::q5_k::encode_weighted_lanes::<$Vector>;
            encode_q6_k_weighted(weights, importance) = $crate::q6_k::encode_weighted_lanes::<$Vector>;
            encode_iq4_nl_weighted(weights, importance) = $crate::iq4_nl::encode_weighted_lanes::<$Vector>;
            encode_iq4_xs_weighted(weights, importance) = $crate::iq4_xs::encode_weighted_lanes::<$Vector>;
            encode_q4_0_weighted(weights, importance) = $crate::q4_0::encode_weighted_lanes::<$Vector>;
            encode_q4_1_weighted(weights, importance) = $crate::q4_1::encode_weighted_lanes::<$Vector>;
            encode_q5_0_weighted(weights, importance) = $crate::q5_0::encode_weighted_lanes::<$Vector>;
            encode_q5_1_weighted(weights, importance) = $crate::q5_1::encode_weighted_lanes::<$Vector>;
        }
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

searches! { "avx2,f16c", crate::avx2::lanes::Avx2 }

pub(crate) use {compiled, searches};
