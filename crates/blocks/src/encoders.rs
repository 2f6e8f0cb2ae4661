//! The encoders of a format whose search can run in lanes: the declaration of their variants.

/// Declares `encode_rows` and `encode_rows_weighted` of a format, with a test that their variants agree. The scalar
/// rules and the searches in lanes are the module's own, or those of the module that the format shares with others.
macro_rules! encoders {
    ($Format:ident, $shared:ident, [$($size:ident),+], $plain:ident, $weighted:ident) => {
        fn encode_scalar(weights: &[f32], bytes: &mut [u8]) {
            $shared::encode::<$Format, $($size),+>(weights, bytes);
        }

        fn encode_weighted_scalar(weights: &[f32], importance: &[f32], bytes: &mut [u8]) {
            $shared::encode_weighted::<$Format, $($size),+>(weights, importance, bytes);
        }

        #[inline(always)]
        pub(crate) fn encode_lanes<V: Lanes>(weights: &[f32], bytes: &mut [u8]) {
            $shared::encode_lanes::<$Format, V, $($size),+>(weights, bytes);
        }

        #[inline(always)]
        pub(crate) fn encode_weighted_lanes<V: Lanes>(weights: &[f32], importance: &[f32], bytes: &mut [u8]) {
            $shared::encode_weighted_lanes::<$Format, V, $($size),+>(weights, importance, bytes);
        }

        encoders! { $Format, $plain, $weighted }
    };
    ($Format:ident, $plain:ident, $weighted:ident) => {
        dispatch! {
            fn encode_rows(weights: &[f32], bytes: &mut [u8]) {
                fast avx512("avx2", "f16c", "avx512f", "avx512dq", "avx512bw", "avx512vl")
                    => crate::avx512::compiled::$plain,
                fast avx2("avx2", "f16c") => crate::avx2::compiled::$plain,
                neon => crate::neon::compiled::$plain,
                scalar => encode_scalar,
            }
            encode_variants_agree on crate::samples::finite_weights(), in $Format::DTYPE
        }

        encoders! { $Format, $weighted }
    };
    ($Format:ident, $weighted:ident) => {
        dispatch! {
            fn encode_rows_weighted(weights: &[f32], importance: &[f32], bytes: &mut [u8]) {
                fast avx512("avx2", "f16c", "avx512f", "avx512dq", "avx512bw", "avx512vl")
                    => crate::avx512::compiled::$weighted,
                fast avx2("avx2", "f16c") => crate::avx2::compiled::$weighted,
                neon => crate::neon::compiled::$weighted,
                scalar => encode_weighted_scalar,
            }
            weighted_variants_agree on crate::samples::finite_weights(), in $Format::DTYPE
        }
    };
}
