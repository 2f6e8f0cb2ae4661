use super::{Rule, Window, exactly, expect, expect_activation};
use crate::case::{Case, Fill};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// Reduces the elements under each window position to their maximum, or to their sum divided by the window's area.
///
/// Input: `x`, an activation `[width, height, channels, batch]`. Output: `[places across, places down, channels,
/// batch]` of its type. Padding adds nothing to a sum and is never the largest; the area counts it. The window has no
/// dilation, and its padding is at most half its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Pool2d {
    /// The size of the window and how it slides.
    pub window: Window,
    /// How the elements are reduced.
    pub rule: Pooling,
}

/// How a [`Pool2d`] reduces a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// The sum divided by the window's area.
    Average,
    /// The largest.
    Max,
}

impl Rule for Pool2d {
    const NAMES: &'static [&'static str] = &["pool_2d"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [x] = exactly(inputs)?;
        expect_activation("x", &x)?;
        let window = &self.window;
        let small = window.padding.iter().zip(window.size).all(|(padding, size)| *padding <= size / 2);
        expect(small && window.dilation == [1, 1], || {
            format!("a pooling window must have no dilation and a padding of at most half its size, not {window:?}")
        })?;
        let [width, height, channels, batch] = x.shape.sizes();
        expect(width > 0 && height > 0, || format!("a window covers no element of {x}"))?;
        let [across, down] = window.places([width, height])?;
        Ok(TensorType::new(x.dtype, &[across, down, channels, batch]))
    }

    fn cases() -> Vec<Case> {
        let window = |size, stride, padding| Window { size, stride, padding, dilation: [1, 1] };
        let windows = [
            window([1, 1], [1, 1], [0, 0]),
            window([2, 2], [2, 2], [0, 0]),
            window([3, 3], [2, 2], [1, 1]),
            window([3, 2], [1, 3], [1, 0]),
            window([2, 5], [2, 1], [1, 2]),
            window([7, 7], [7, 7], [3, 3]),
        ];
        let images: [&[usize]; 6] = [&[8, 8, 3], &[31, 9, 2, 3], &[7, 33, 1, 2], &[7, 7], &[10, 10, 0], &[56, 56, 64]];
        let mut cases = Vec::new();
        for window in windows {
            for image in images {
                let x = TensorType::new(DType::F32, image);
                cases.push(Case::probe(Pool2d { window, rule: Pooling::Max }, &[(x, Fill::Normal(1.0))]));
                cases.push(Case::new(Pool2d { window, rule: Pooling::Average }, &[(x, Fill::Normal(1.0))]));
                let exact = (window.size[0] * window.size[1]).is_power_of_two();
                let integers = Case::new(Pool2d { window, rule: Pooling::Average }, &[(x, Fill::Integers(-9, 9))]);
                cases.push(Case { probe: exact, ..integers });
            }
        }
        cases
    }
}
