use super::{Rule, Window, exactly, expect, expect_activation};
use crate::case::{Case, Fill};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// Copies the elements under each window position into a column, so that a convolution becomes a matrix product:
///
/// ```text
///  planes  x [width, height, channels, batch] -> y [channels * kh * kw, places across, places down, batch]
///  lines   x [width, channels, batch]         -> y [channels * kw, places, batch]
///          y[(c kh + j) kw + i, p, q, b] = x[p stride + i dilation - padding, ..., c, b], outside the image 0
/// ```
///
/// Input: `x`, an activation. Output: its type. Nothing is rounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Im2Col {
    /// The kernel of the convolution and how it slides.
    pub window: Window,
    /// Whether the input is one-dimensional. The window must then be a [`Window::line`].
    pub lines: bool,
}

impl Rule for Im2Col {
    const NAMES: &'static [&'static str] = &["im2col"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [x] = exactly(inputs)?;
        expect_activation("x", &x)?;
        let [width, second, third, fourth] = x.shape.sizes();
        let (height, channels) = if self.lines { (1, second) } else { (second, third) };
        if self.lines {
            let window = &self.window;
            let line = Window::line(window.size[0], window.stride[0], window.padding[0], window.dilation[0]);
            expect(*window == line && fourth == 1, || {
                format!("lines are [width, channels, batch] and their window has one axis, not {x} and {window:?}")
            })?;
        }
        let [across, down] = self.window.places([width, height])?;
        let taps = self.window.size[0].checked_mul(self.window.size[1]).and_then(|taps| taps.checked_mul(channels));
        let outer = if self.lines { [across, third, 1] } else { [across, down, fourth] };
        let elements = outer.iter().try_fold(taps.unwrap_or(usize::MAX), |all, size| all.checked_mul(*size));
        expect(elements.is_some_and(|elements| elements <= isize::MAX as usize / 8), || {
            format!("the number of columns of {:?} on {x} overflows", self.window)
        })?;
        Ok(TensorType::new(x.dtype, &[taps.unwrap_or(0), outer[0], outer[1], outer[2]]))
    }

    fn cases() -> Vec<Case> {
        let window = |size, stride, padding, dilation| Window { size, stride, padding, dilation };
        let windows = [
            window([1, 1], [1, 1], [0, 0], [1, 1]),
            window([3, 3], [1, 1], [1, 1], [1, 1]),
            window([3, 2], [2, 1], [1, 0], [1, 2]),
            window([2, 5], [3, 2], [0, 2], [2, 1]),
            window([4, 4], [4, 4], [0, 0], [1, 1]),
        ];
        let images: [&[usize]; 5] = [&[8, 8, 3], &[31, 9, 2, 3], &[7, 33, 1, 2], &[10, 10, 0], &[64, 64, 16]];
        let mut cases = Vec::new();
        for window in windows {
            for image in images {
                let x = (TensorType::new(DType::F32, image), Fill::Normal(1.0));
                cases.push(Case::probe(Im2Col { window, lines: false }, &[x]));
            }
        }
        let lines: [&[usize]; 4] = [&[16, 3], &[31, 5, 2], &[257, 2, 3], &[3000, 80]];
        for window in
            [Window::line(1, 1, 0, 1), Window::line(3, 1, 1, 1), Window::line(3, 2, 1, 1), Window::line(5, 3, 4, 2)]
        {
            for line in lines {
                let x = (TensorType::new(DType::F32, line), Fill::Normal(1.0));
                cases.push(Case::probe(Im2Col { window, lines: true }, &[x]));
            }
        }
        cases
    }
}
