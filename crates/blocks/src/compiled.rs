//! The declaration of functions that are portable code, compiled again for an instruction set.

/// Functions with an attribute. It names the instruction set; for NEON, which every aarch64 processor has, it is
/// `inline(never)`.
macro_rules! compiled {
    ($attribute:tt: $($name:ident($source:ty => $target:ty) = $scalar:path;)+) => {
        $(
            #$attribute
            pub(crate) fn $name(source: &[$source], target: &mut [$target]) {
                $scalar(source, target);
            }
        )+
    };
    ($attribute:tt: $($name:ident(weights, importance) = $lanes:path;)+) => {
        $(
            #$attribute
            pub(crate) fn $name(weights: &[f32], importance: &[f32], bytes: &mut [u8]) {
                $lanes(weights, importance, bytes);
            }
        )+
    };
}

/// The searches with a group in each lane of a vector.
macro_rules! searches {
    ($attribute:tt, $Vector:ty) => {
        compiled! { $attribute:
            encode_q2_k(f32 => u8) = $crate::q2_k::encode_lanes::<$Vector>;
            encode_q3_k(f32 => u8) = $crate::q3_k::encode_lanes::<$Vector>;
            encode_q4_k(f32 => u8) = $crate::q4_k::encode_lanes::<$Vector>;
            encode_q5_k(f32 => u8) = $crate::q5_k::encode_lanes::<$Vector>;
            encode_q6_k(f32 => u8) = $crate::q6_k::encode_lanes::<$Vector>;
            encode_iq4_nl(f32 => u8) = $crate::iq4_nl::encode_lanes::<$Vector>;
            encode_iq4_xs(f32 => u8) = $crate::iq4_xs::encode_lanes::<$Vector>;
        }
        compiled! { $attribute:
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
