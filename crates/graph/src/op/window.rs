use super::expect;
use serde::{Deserialize, Serialize};

/// A window that slides over an image. First numbers are horizontal, second ones vertical.
///
/// ```text
///  output o, tap k of one axis  ──▶  place  o stride + k dilation - padding     outside the image: padding
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Window {
    /// Taps of the window.
    pub size: [usize; 2],
    /// Stride.
    pub stride: [usize; 2],
    /// Padding at each edge.
    pub padding: [usize; 2],
    /// Distance between taps.
    pub dilation: [usize; 2],
}

/// Maximum of each number of a window, so that positions fit into 64 bits.
const NUMBER_MAX: usize = 1 << 24;

impl Window {
    /// A window over one-dimensional inputs: size, stride and dilation 1 and padding 0 on the second axis.
    pub const fn line(size: usize, stride: usize, padding: usize, dilation: usize) -> Window {
        Window { size: [size, 1], stride: [stride, 1], padding: [padding, 0], dilation: [dilation, 1] }
    }

    /// Number of window positions on an image of these sizes, or an error if there are none.
    pub(super) fn places(&self, image: [usize; 2]) -> Result<[usize; 2], String> {
        let positive = [self.size, self.stride, self.dilation].concat();
        let sane = positive.iter().all(|number| (1..=NUMBER_MAX).contains(number))
            && self.padding.iter().chain(&image).all(|number| *number <= NUMBER_MAX);
        expect(sane, || {
            format!("the window's numbers must be at least 1 (padding 0) and at most {NUMBER_MAX}, not {self:?}")
        })?;
        let mut places = [0; 2];
        for axis in 0..2 {
            let span = (self.size[axis] - 1) * self.dilation[axis] + 1;
            let padded = image[axis] + 2 * self.padding[axis];
            expect(span <= padded, || format!("a window that spans {span} does not fit into {padded} with padding"))?;
            places[axis] = (padded - span) / self.stride[axis] + 1;
        }
        Ok(places)
    }
}
