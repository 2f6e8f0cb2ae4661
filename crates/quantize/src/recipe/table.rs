//! The schemes as a table.
//!
//! Source: the recipes of llama.cpp's quantizer, as recorded in `fixtures/recipes`. One difference is deliberate: the
//! types q4_0 to q5_1 do not use q6_k for the output head.

use super::role::Role;
use super::role::Role::{AttentionOutput, FeedForwardDown, Value};
use super::scheme::When::{
    EightExperts, Falcon, First, FirstEighth, FirstSixteenth, NotEightExperts, NotExperts, NotFalcon, Sensitive,
    SharedByFour, WithImportance, WithoutImportance,
};
use super::scheme::{Mix, Scheme, When};
use trueup_blocks::DType::{
    self, Bf16, F16, F32, Iq4Nl, Iq4Xs, Mxfp4, Nvfp4, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0, Q8_1,
    Tq1_0, Tq2_0,
};

/// All schemes, in the order in which help lists them.
pub(super) static SCHEMES: [Scheme; 26] = [
    Scheme::uniform(F32, Some(0)),
    Scheme::uniform(F16, Some(1)),
    Scheme::uniform(Bf16, Some(32)),
    Scheme::uniform(Q8_0, Some(7)),
    Scheme { output: Q8_0, token_embedding: Q8_0, mixes: &[GUARD_4_BITS], ..Scheme::uniform(Q4_0, Some(2)) },
    Scheme { mixes: &[GUARD_5_BITS], ..Scheme::uniform(Q5_0, Some(8)) },
    Scheme { output: Q8_0, token_embedding: Q8_0, ..Scheme::uniform(Q4_1, Some(3)) },
    Scheme::uniform(Q5_1, Some(9)),
    Scheme::uniform(Q8_1, None),
    Scheme {
        mixes: &[
            mix(Value, &[SharedByFour], Q4K),
            mix(Value, &[], Q3K),
            mix(AttentionOutput, &[NotFalcon, EightExperts], Q5K),
            mix(AttentionOutput, &[NotFalcon], Q3K),
            mix(FeedForwardDown, &[], Q3K),
        ],
        ..k_type("q2_k", Q2K, 10)
    },
    Scheme {
        needs_importance: true,
        mixes: &[mix(Value, &[SharedByFour], Q4K), mix(FeedForwardDown, &[FirstEighth], Q4K)],
        ..k_type("q2_k_s", Q2K, 21)
    },
    Scheme { mixes: &[EIGHT_EXPERTS], ..k_type("q3_k_s", Q3K, 11) },
    Scheme {
        alias: Some("q3_k"),
        mixes: &[
            mix(Value, &[First(2)], Q5K),
            mix(Value, &[], Q4K),
            EIGHT_EXPERTS,
            mix(AttentionOutput, &[NotFalcon], Q4K),
            mix(FeedForwardDown, &[FirstSixteenth], Q5K),
            mix(FeedForwardDown, &[NotFalcon], Q4K),
            mix(FeedForwardDown, &[Falcon, Sensitive], Q4K),
        ],
        ..k_type("q3_k_m", Q3K, 12)
    },
    Scheme {
        mixes: &[
            mix(Value, &[], Q5K),
            mix(AttentionOutput, &[Falcon], Q4K),
            mix(AttentionOutput, &[NotEightExperts], Q5K),
            mix(FeedForwardDown, &[Falcon], Q4K),
            mix(FeedForwardDown, &[], Q5K),
        ],
        ..k_type("q3_k_l", Q3K, 13)
    },
    Scheme {
        mixes: &[mix(Value, &[First(4)], Q5K), EIGHT_EXPERTS, mix(FeedForwardDown, &[NotFalcon, FirstEighth], Q5K)],
        ..k_type("q4_k_s", Q4K, 14)
    },
    Scheme {
        alias: Some("q4_k"),
        mixes: &[
            mix(Value, &[Sensitive], Q6K),
            EIGHT_EXPERTS,
            mix(FeedForwardDown, &[Falcon, FirstSixteenth], Q6K),
            mix(FeedForwardDown, &[Falcon, Sensitive], Q5K),
            mix(FeedForwardDown, &[NotFalcon, Sensitive], Q6K),
        ],
        ..k_type("q4_k_m", Q4K, 15)
    },
    k_type("q5_k_s", Q5K, 16),
    Scheme {
        alias: Some("q5_k"),
        mixes: &[mix(Value, &[Sensitive], Q6K), mix(FeedForwardDown, &[Sensitive], Q6K)],
        ..k_type("q5_k_m", Q5K, 17)
    },
    k_type("q6_k", Q6K, 18),
    Scheme {
        mixes: &[
            mix(Value, &[SharedByFour], Q5K),
            EIGHT_EXPERTS,
            mix(FeedForwardDown, &[WithoutImportance, FirstEighth], Q5K),
        ],
        ..k_type("iq4_nl", Iq4Nl, 25)
    },
    Scheme {
        mixes: &[
            mix(Value, &[SharedByFour], Q5K),
            EIGHT_EXPERTS,
            mix(FeedForwardDown, &[WithoutImportance, FirstEighth], Q5K),
        ],
        ..k_type("iq4_xs", Iq4Xs, 30)
    },
    Scheme {
        name: "mxfp4_moe",
        output: Q8_0,
        token_embedding: Q8_0,
        mixes: &[Mix { role: None, when: &[NotExperts], dtype: Q8_0 }],
        ..Scheme::uniform(Mxfp4, Some(38))
    },
    Scheme { token_embedding: Q4K, ..k_type("tq1_0", Tq1_0, 36) },
    Scheme { token_embedding: Q4K, ..k_type("tq2_0", Tq2_0, 37) },
    Scheme::uniform(Mxfp4, None),
    Scheme::uniform(Nvfp4, None),
];

/// A scheme with a q6_k output head, and no exceptions.
const fn k_type(name: &'static str, base: DType, file_type: u32) -> Scheme {
    Scheme { name, output: Q6K, ..Scheme::uniform(base, Some(file_type)) }
}

const fn mix(role: Role, when: &'static [When], dtype: DType) -> Mix {
    Mix { role: Some(role), when, dtype }
}

/// Attention outputs are small compared with 8 experts.
const EIGHT_EXPERTS: Mix = mix(AttentionOutput, &[NotFalcon, EightExperts], Q5K);

/// With an importance matrix, q4_0 and q5_0 fit the first down matrices badly.
const GUARD_4_BITS: Mix = mix(FeedForwardDown, &[WithImportance, FirstEighth], Q4_1);
const GUARD_5_BITS: Mix = mix(FeedForwardDown, &[WithImportance, FirstEighth], Q5_1);
