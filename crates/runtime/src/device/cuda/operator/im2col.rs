//! What a window sees at each place, as a column: a thread for each element.

use super::{Argument, Call, ELEMENTWISE, Grid, View, expect_f32};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::Im2Col;

pub fn profile(_: &Im2Col, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    Ok(ELEMENTWISE)
}

pub fn launch(op: &Im2Col, call: &mut Call) -> Result<(), String> {
    let (x, y) = (call.inputs[0].view, call.output.view);
    // Lines are images of height 1, whose windows have one place down.
    let (x, y) = if op.lines { (x.with_one_at(1), y.with_one_at(2)) } else { (x, y) };
    let window = &op.window;
    let numbers = [window.size, window.stride, window.padding, window.dilation].concat();
    let mut arguments = vec![Argument::View(x), Argument::View(y)];
    arguments.extend(numbers.into_iter().map(|number| Argument::Index(number as i64)));
    call.launch("im2col_f32", Grid::elements(call.output.ty.shape.elements())?, &arguments)
}

impl View {
    /// The same elements with one more dimension, of size 1, in place of the last, which is 1.
    fn with_one_at(self, dimension: usize) -> View {
        let View { data, mut sizes, mut steps } = self;
        sizes[dimension..].rotate_right(1);
        steps[dimension..].rotate_right(1);
        View { data, sizes, steps }
    }
}
