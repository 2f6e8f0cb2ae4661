//! Indices by rank: right is what points to the value that belongs there, whichever of equal elements that is, and no
//! element twice. A row that holds NaN has no order that all devices share.

use super::{Case, in_strips};
use crate::statistics::{Expected, Statistics};
use trueup_graph::op::{Rank, RankRule};

pub(super) fn judge(rank: &Rank, case: &Case) -> Statistics {
    let [x] = case.inputs else { return Statistics::default() };
    let wanted = match rank.rule {
        RankRule::ArgMax => 1,
        RankRule::Ascending | RankRule::Descending => x.ty.shape[0],
        RankRule::TopK { k } => k,
    };
    let found = case.output.all();
    in_strips(case, x.ty.shape.rows(), |row, tally| {
        let mut buffer = Vec::new();
        let x = x.row(row, &mut buffer);
        let places = sorted(rank.rule, x);
        let found = &found[row * wanted..][..wanted];
        let undefined = x.iter().any(|x| x.is_nan());
        let mut taken = vec![false; x.len()];
        for (rank, (found, place)) in found.iter().zip(places).enumerate() {
            let right = index(*found, x.len()).is_some_and(|found| {
                let first = !std::mem::replace(&mut taken[found], true);
                first && x[found] == x[place]
            });
            let expected = if undefined {
                f64::NAN
            } else if right {
                *found
            } else {
                place as f64
            };
            // A repeated place may be the very number that an earlier rank should have had.
            let expected = if !right && expected == *found { -1.0 } else { expected };
            tally.add(row * wanted + rank, &Expected::same(expected, expected));
        }
    })
}

/// Places of the elements in order, equal ones as they lie.
fn sorted(rule: RankRule, x: &[f64]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..x.len()).collect();
    match rule {
        RankRule::Ascending => places.sort_by(|a, b| (x[*a] + 0.0).total_cmp(&(x[*b] + 0.0))),
        RankRule::ArgMax | RankRule::Descending | RankRule::TopK { .. } => {
            places.sort_by(|a, b| (x[*b] + 0.0).total_cmp(&(x[*a] + 0.0)));
        }
    }
    places
}

fn index(found: f64, len: usize) -> Option<usize> {
    let whole = found >= 0.0 && found < len as f64 && found.fract() == 0.0;
    whole.then_some(found as usize)
}

#[cfg(test)]
mod tests {
    use crate::bound::testing::{f32_type, passes};
    use crate::operand::Operand;
    use trueup_graph::Op;
    use trueup_graph::op::{Rank, RankRule};
    use trueup_runtime::profile::Profile;

    #[test]
    fn any_of_equal_elements_passes_and_none_twice() {
        let x = [2.0, -1.0, 2.0, 0.5];
        let inputs = [Operand::numbers(f32_type(&[4]), &x)];
        let top = RankRule::TopK { k: 2 };
        let cases: [(RankRule, &[f64], bool); 13] = [
            (RankRule::ArgMax, &[0.0], true),
            (RankRule::ArgMax, &[2.0], true),
            (RankRule::ArgMax, &[3.0], false),
            (RankRule::ArgMax, &[4.0], false),
            (RankRule::Ascending, &[1.0, 3.0, 0.0, 2.0], true),
            (RankRule::Ascending, &[1.0, 3.0, 2.0, 0.0], true),
            (RankRule::Ascending, &[1.0, 3.0, 2.0, 2.0], false),
            (RankRule::Descending, &[2.0, 0.0, 3.0, 1.0], true),
            (RankRule::Descending, &[0.0, 0.0, 3.0, 1.0], false),
            (RankRule::Descending, &[1.0, 3.0, 2.0, 0.0], false),
            (top, &[2.0, 0.0], true),
            (top, &[0.0, 3.0], false),
            (top, &[0.0, -1.0], false),
        ];
        for (rule, result, right) in cases {
            assert_eq!(passes(&Op::Rank(Rank { rule }), &inputs, &Profile::F32, result), right, "{rule:?} {result:?}");
        }
    }
}
