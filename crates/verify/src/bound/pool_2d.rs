//! The largest element that a window sees, bit for bit, or the mean: a short sum, at most `gamma A`, divided by the
//! area.

use super::{Case, arithmetic, copied, in_strips, within};
use crate::precision::Precision;
use crate::statistics::Statistics;
use crate::sum::Sum;
use crate::verdict::Gate;
use trueup_graph::op::{Pool2d, Pooling};

pub(super) fn gate(pool: &Pool2d) -> Gate {
    match pool.rule {
        Pooling::Average => Gate::Bound,
        Pooling::Max => Gate::Bits,
    }
}

pub(super) fn judge(pool: &Pool2d, case: &Case) -> Statistics {
    match pool.rule {
        Pooling::Average => averaged(pool, case),
        Pooling::Max => copied::judge(case),
    }
}

fn averaged(pool: &Pool2d, case: &Case) -> Statistics {
    let [x] = case.inputs else { return Statistics::default() };
    let all = x.all();
    let [width, height, ..] = x.ty.shape.sizes();
    let [across, down, channels, batch] = case.output.ty.shape.sizes();
    let precision = arithmetic(case.profile);
    let area = (pool.window.size[0] * pool.window.size[1]) as f64;
    in_strips(case, down * channels * batch, |line, tally| {
        let plane = &all[line / down * width * height..][..width * height];
        for column in 0..across {
            let seen = seen(pool, plane, [width, height], [column, line % down]);
            let sum = Sum::of(&seen, 1);
            let exact = sum.value / area;
            let error = sum.hard_bound(precision, 1) / area + precision.unit * exact.abs();
            let mut expected = within(case, exact, error);
            expected.coarse += 2.0 * Precision::BF16.unit * sum.absolute / area;
            tally.add(line * across + column, &expected);
        }
    })
}

/// The elements of the plane under the window at this place.
fn seen(pool: &Pool2d, plane: &[f64], [width, height]: [usize; 2], place: [usize; 2]) -> Vec<f64> {
    let mut seen = Vec::new();
    for j in 0..pool.window.size[1] {
        for i in 0..pool.window.size[0] {
            let column = (place[0] * pool.window.stride[0] + i).checked_sub(pool.window.padding[0]);
            let row = (place[1] * pool.window.stride[1] + j).checked_sub(pool.window.padding[1]);
            if let (Some(column), Some(row)) = (column.filter(|at| *at < width), row.filter(|at| *at < height)) {
                seen.push(plane[row * width + column]);
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use crate::bound::testing::{f32_type, numbers, passes};
    use crate::operand::Operand;
    use trueup_graph::Op;
    use trueup_graph::op::{Pool2d, Pooling, Window};
    use trueup_runtime::profile::Profile;

    const WINDOW: Window = Window { size: [3, 1], stride: [2, 1], padding: [1, 0], dilation: [1, 1] };

    #[test]
    fn means_that_count_the_padding_pass_and_those_that_do_not_fail() {
        let x = numbers(5, 44);
        let inputs = [Operand::numbers(f32_type(&[5]), &x)];
        let op = |rule| Op::Pool2d(Pool2d { window: WINDOW, rule });
        let sum = |terms: &[f64]| terms.iter().fold(0.0f32, |sum, x| sum + *x as f32);
        let sums = [sum(&x[..2]), sum(&x[1..4]), sum(&x[3..])];
        let means = |edge: f32| [sums[0] / edge, sums[1] / 3.0, sums[2] / edge].map(f64::from);
        assert!(passes(&op(Pooling::Average), &inputs, &Profile::F32, &means(3.0)));
        assert!(!passes(&op(Pooling::Average), &inputs, &Profile::F32, &means(2.0)));
        let largest = [&x[..2], &x[1..4], &x[3..]].map(|seen| seen.iter().copied().fold(f64::MIN, f64::max));
        assert!(passes(&op(Pooling::Max), &inputs, &Profile::F32, &largest));
        assert!(!passes(&op(Pooling::Max), &inputs, &Profile::F32, &means(3.0)));
    }
}
