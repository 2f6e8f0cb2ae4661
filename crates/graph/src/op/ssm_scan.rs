use super::{Rule, exactly, expect, expect_activation, expect_indices};
use crate::case::{Case, Fill};
use crate::shape::{Shape, TensorType};
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// A selective state space model, token by token; `d = softplus(dt[h, t, s])`, `g = h groups / heads`:
///
/// ```text
///  H[n, i, h] <- H[n, i, h] exp(d A[n, h]) + d B[n, g, t, s] x[i, h, t, s]        H starts as states[:, :, :, ids[s]]
///  y[i, h, t, s] = sum_n C[n, g, t, s] H[n, i, h]
/// ```
///
/// Inputs: `states` `[state, size, heads, slots]`; `x` `[size, heads, tokens, sequences]`; `dt` `[heads, tokens,
/// sequences]`; `A` `[state, heads]`, or `[1, heads]` where it is the same for the whole state; `B` and `C` `[state,
/// groups, tokens, sequences]`; `ids` i32 `[sequences]`. `A` is floating point, the others are activations of one type.
/// Output: a vector: `y`, followed by the last state of each sequence. Sources: Gu and Dao 2023, algorithm 2 (heads of
/// size 1); Dao and Gu 2024, section 7 (one `A` for each head).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SsmScan;

impl Rule for SsmScan {
    const NAMES: &'static [&'static str] = &["ssm_scan"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [states, x, dt, a, b, c, ids] = exactly(inputs)?;
        expect_activation("states", &states)?;
        let [state, size, heads, _] = states.shape.sizes();
        let [_, _, tokens, sequences] = x.shape.sizes();
        let activation = |what: &str, ty: &TensorType, sizes: &[usize]| {
            let wanted = TensorType { dtype: states.dtype, shape: Shape::new(sizes) };
            expect(*ty == wanted, || format!("{what} must be {wanted}, not {ty}"))
        };
        activation("x", &x, &[size, heads, tokens, sequences])?;
        activation("dt", &dt, &[heads, tokens, sequences])?;
        let groups = b.shape[1];
        expect(groups > 0 && heads.is_multiple_of(groups), || {
            format!("the groups of B must divide {heads} heads, not {b}")
        })?;
        activation("B", &b, &[state, groups, tokens, sequences])?;
        activation("C", &c, &[state, groups, tokens, sequences])?;
        let shared = a.shape == Shape::new(&[1, heads]) || a.shape == Shape::new(&[state, heads]);
        expect(a.dtype.is_float() && shared, || {
            format!("A must be floating point and [{state}, {heads}] or [1, {heads}], not {a}")
        })?;
        expect_indices("ids", &ids, sequences)?;
        Ok(TensorType::new(states.dtype, &[x.shape.elements() + state * size * heads * sequences]))
    }

    fn cases() -> Vec<Case> {
        // state, size, heads, groups, tokens, sequences
        let all = [
            [16, 1, 33, 1, 7, 2],
            [16, 1, 1536, 1, 16, 1],
            [1, 1, 1, 1, 1, 1],
            [31, 3, 4, 2, 5, 3],
            [128, 64, 8, 1, 9, 1],
            [64, 32, 6, 3, 33, 2],
            [16, 1, 257, 1, 64, 1],
            [4, 2, 2, 2, 0, 2],
        ];
        let mut cases = Vec::new();
        for [state, size, heads, groups, tokens, sequences] in all {
            for a_state in [state, 1] {
                for dt in [Fill::Uniform(-6.0, 1.0), Fill::Uniform(-1.0, 25.0)] {
                    let slots = sequences + 1;
                    let f32 = |sizes: &[usize]| TensorType::new(DType::F32, sizes);
                    let bc = (f32(&[state, groups, tokens, sequences]), Fill::Normal(1.0));
                    let inputs = [
                        (f32(&[state, size, heads, slots]), Fill::Normal(1.0)),
                        (f32(&[size, heads, tokens, sequences]), Fill::Normal(1.0)),
                        (f32(&[heads, tokens, sequences]), dt),
                        (f32(&[a_state, heads]), Fill::Uniform(-4.0, -0.1)),
                        bc,
                        bc,
                        (TensorType::new(DType::I32, &[sequences]), Fill::Distinct(slots as i32)),
                    ];
                    cases.push(Case::new(SsmScan, &inputs));
                }
            }
        }
        cases
    }
}
