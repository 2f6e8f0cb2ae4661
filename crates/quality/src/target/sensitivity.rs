//! The cost of each type of a group, derived from measurements of a few types.
//!
//! The KL divergence that a group causes grows with the squared error of its weights. The cost of a type between two
//! measured types is interpolated by its squared error, on logarithmic scales. Outside of them, the cost is
//! proportional to the squared error. If all types of a group were measured, each has its measured cost.

use super::groups::{Group, middle_distance};
use super::measurements::Measured;
use trueup_blocks::DType;

/// The cost of a type whose range a weight exceeds: larger than the divergence of any useful model.
const UNFIT_COST: f64 = 1e6;

/// The squared error of such a type.
pub(super) const UNFIT_ERROR: f32 = f32::MAX;

/// A measured type.
#[derive(Clone, Copy)]
struct Anchor {
    error: f64,
    kl: f64,
}

impl Measured {
    /// Whether all required measurements of a group exist: with `all`, of each type that its weights fit into.
    pub fn is_complete(&self, group: &Group, all: bool) -> bool {
        let has_errors = needed_errors(group).all(|dtype| self.errors.contains_key(dtype.name()));
        let is_known = |dtype: &DType| self.kl.contains_key(dtype.name()) || all && self.is_unfit(*dtype);
        has_errors && group.measured_types(all).iter().chain(&self.lossy_anchor(group)).all(is_known)
    }

    /// The lossy type closest to 4.5 bits per weight, if no type of [`Group::anchors`] is lossy and can store the
    /// weights. It is measured too, because the costs of lossy types cannot be estimated from lossless ones. A type is
    /// lossy if its squared error is larger than that of the base. `None` unless all squared errors are known.
    pub fn lossy_anchor(&self, group: &Group) -> Option<DType> {
        if !needed_errors(group).all(|dtype| self.errors.contains_key(dtype.name())) {
            return None;
        }
        let base = self.error(group, group.base());
        let is_lossy = |dtype: &DType| !self.is_unfit(*dtype) && self.error(group, *dtype) > base;
        if group.anchors().iter().any(is_lossy) {
            return None;
        }
        let lossy = group.measurable().filter(|dtype| dtype.is_quantized() && is_lossy(dtype));
        lossy.copied().min_by(|a, b| middle_distance(*a).total_cmp(&middle_distance(*b)))
    }

    /// The increase of the KL divergence over the base, for each candidate of the group.
    pub fn costs(&self, group: &Group) -> Vec<f64> {
        let base = self.error(group, group.base());
        let types = group.anchors().into_iter().chain(self.lossy_anchor(group));
        let mut anchors: Vec<Anchor> = types.filter_map(|dtype| self.anchor(dtype, base)).collect();
        anchors.sort_by(|a, b| a.error.total_cmp(&b.error));
        // A larger error does not cost less.
        for place in 1..anchors.len() {
            anchors[place].kl = anchors[place].kl.max(anchors[place - 1].kl);
        }
        let of_base = interpolated(&anchors, base);
        let is_complete = self.is_complete(group, true);
        let measured = |dtype: &DType| self.kl.get(dtype.name()).filter(|_| is_complete).map(above_noise);
        let estimated = |dtype: &DType| interpolated(&anchors, self.error(group, *dtype)) - of_base;
        let cost = |dtype: &DType| match self.is_unfit(*dtype) {
            true => UNFIT_COST,
            false => measured(dtype).unwrap_or_else(|| estimated(dtype)).min(UNFIT_COST),
        };
        group.candidates.iter().map(cost).collect()
    }

    /// Whether a weight is too large for the type.
    pub fn is_unfit(&self, dtype: DType) -> bool {
        self.errors.get(dtype.name()) == Some(&UNFIT_ERROR)
    }

    /// The squared error of a type; 0 for the type of the source.
    fn error(&self, group: &Group, dtype: DType) -> f64 {
        if dtype == group.source {
            return 0.0;
        }
        self.errors.get(dtype.name()).map_or(0.0, |error| f64::from(*error))
    }

    /// A measured type with its total divergence; the measurement is the difference from the base type.
    fn anchor(&self, dtype: DType, base: f64) -> Option<Anchor> {
        let error = f64::from(*self.errors.get(dtype.name())?);
        let kl = above_noise(self.kl.get(dtype.name())?);
        let share = if error > 0.0 { (base / error).min(0.5) } else { 0.0 };
        Some(Anchor { error, kl: kl / (1.0 - share) })
    }
}

/// A measured difference and its standard error, as a cost. Differences within the noise can be negative.
fn above_noise(measured: &[f32; 2]) -> f64 {
    let [kl, spread] = measured.map(f64::from);
    kl.max(spread / 2.0)
}

/// Lowers the costs of floating-point types in groups whose base type is quantized: matrices in quantized types also
/// round their inputs. The part of the base's divergence that the errors of weights do not explain is divided equally
/// among these groups.
pub(super) fn credit_floats(groups: &[Group], costs: &mut [Vec<f64>], base_kl: f64) {
    let is_rounded = |group: &Group| group.base().is_quantized() && !group.source.is_quantized();
    let rounded = groups.iter().filter(|group| is_rounded(group)).count();
    let floats = |group: &Group| group.candidates.iter().position(|dtype| !dtype.is_quantized());
    let places: Vec<Option<usize>> = groups
        .iter()
        .zip(&*costs)
        .map(|(group, costs)| floats(group).filter(|place| is_rounded(group) && costs[*place] <= 0.0))
        .collect();
    let explained: f64 = places.iter().zip(&*costs).filter_map(|(place, costs)| Some(-costs[(*place)?])).sum();
    let share = (base_kl - explained).max(0.0) / rounded.max(1) as f64;
    for (place, costs) in places.iter().zip(costs) {
        if let Some(place) = place {
            costs[*place] -= share;
        }
    }
}

/// The types whose squared errors are needed: all candidates and the base type, except the type of the source.
pub(super) fn needed_errors(group: &Group) -> impl Iterator<Item = DType> {
    let base = Some(group.base()).filter(|base| !group.candidates.contains(base));
    group.candidates.iter().copied().chain(base).filter(|dtype| *dtype != group.source)
}

/// The divergence at a squared error. Anchors are sorted by their squared errors.
fn interpolated(anchors: &[Anchor], error: f64) -> f64 {
    let (Some(first), Some(last)) = (anchors.first(), anchors.last()) else { return 0.0 };
    let proportional = |anchor: &Anchor| if anchor.error > 0.0 { anchor.kl * error / anchor.error } else { anchor.kl };
    if error <= first.error {
        return proportional(first);
    }
    if error >= last.error {
        return proportional(last);
    }
    let between = anchors.windows(2).find(|pair| error < pair[1].error);
    let Some([low, high]) = between.and_then(|pair| pair.first_chunk()) else { return proportional(last) };
    if low.kl <= 0.0 || low.error <= 0.0 {
        return low.kl + (high.kl - low.kl) * (error - low.error) / (high.error - low.error);
    }
    let share = libm::log(error / low.error) / libm::log(high.error / low.error);
    low.kl * libm::pow(high.kl / low.kl, share)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(candidates: &[DType]) -> Group {
        let (name, tensors) = ("g".to_owned(), vec![0]);
        Group { name, tensors, source: DType::F16, candidates: candidates.to_vec(), layer: Some(0) }
    }

    fn measured(errors: &[(DType, f32)], kl: &[(DType, [f32; 2])]) -> Measured {
        let errors = errors.iter().map(|(dtype, error)| (dtype.name().to_owned(), *error)).collect();
        let kl = kl.iter().map(|(dtype, kl)| (dtype.name().to_owned(), *kl)).collect();
        Measured { errors, kl }
    }

    #[test]
    fn one_measured_type_gives_all_others_by_their_errors() {
        let group = group(&[DType::Q4_0, DType::Q5_0, DType::Q8_0, DType::F16]);
        let errors = [(DType::Q4_0, 100.0), (DType::Q5_0, 25.0), (DType::Q8_0, 1.0)];
        let measured = measured(&errors, &[(DType::Q4_0, [0.99, 0.001])]);
        assert!(measured.is_complete(&group, false) && !measured.is_complete(&group, true));
        let costs = measured.costs(&group);
        let expected = [0.99, 0.24, 0.0, -0.01];
        assert!(costs.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6), "{costs:?}");
    }

    #[test]
    fn another_type_is_measured_if_the_measured_ones_lose_nothing() {
        let group = group(&[DType::Mxfp4, DType::Q4_0, DType::Q5_0, DType::Q8_0, DType::F16]);
        assert_eq!(group.anchors(), [DType::Q4_0]);
        let errors = [(DType::Mxfp4, 4.0), (DType::Q4_0, 0.0), (DType::Q5_0, 1.0), (DType::Q8_0, 0.0)];
        let mut found = measured(&errors, &[(DType::Q4_0, [0.0, 0.0])]);
        assert_eq!(found.lossy_anchor(&group), Some(DType::Mxfp4));
        assert!(!found.is_complete(&group, false));
        found.kl.insert("mxfp4".to_owned(), [0.2, 0.0]);
        assert!(found.is_complete(&group, false));
        let costs = found.costs(&group);
        let expected = [0.2, 0.0, 0.05, 0.0, 0.0];
        assert!(costs.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6), "{costs:?}");
        // Rounding to the type of the source leaves a small error.
        found.errors.insert("q8_0".to_owned(), 0.25);
        found.errors.insert("q4_0".to_owned(), 1e-6);
        assert_eq!(found.lossy_anchor(&group), Some(DType::Mxfp4));
        found.errors.insert("q4_0".to_owned(), 0.5);
        assert_eq!(found.lossy_anchor(&group), None, "q4_0 is lossy");
        found.errors.remove("q5_0");
        assert_eq!(found.lossy_anchor(&group), None, "errors are missing");
    }

    #[test]
    fn types_between_two_measured_ones_are_interpolated() {
        let group = group(&[DType::Q2K, DType::Q3K, DType::Q4K, DType::Q8_0, DType::F16]);
        assert_eq!(group.anchors(), [DType::Q2K, DType::Q4K]);
        let errors = [(DType::Q2K, 100.0), (DType::Q3K, 10.0), (DType::Q4K, 1.0), (DType::Q8_0, 0.0)];
        let costs = measured(&errors, &[(DType::Q2K, [1.0, 0.0]), (DType::Q4K, [0.01, 0.0])]).costs(&group);
        let expected = [1.0, 0.1, 0.01, 0.0, 0.0];
        assert!(costs.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6), "{costs:?}");
    }

    #[test]
    fn measured_costs_are_not_estimated_if_all_types_are_measured() {
        let group = group(&[DType::Q2K, DType::Q3K, DType::Q4K, DType::Q8_0, DType::F16]);
        let errors = [(DType::Q2K, 100.0), (DType::Q3K, 10.0), (DType::Q4K, 1.0), (DType::Q8_0, 0.0)];
        // A larger error can cost less.
        let kl = [(DType::Q2K, [0.5, 0.0]), (DType::Q3K, [0.75, 0.0]), (DType::Q4K, [-0.5, 0.25])];
        let measured = measured(&errors, &kl);
        assert!(measured.is_complete(&group, true));
        assert_eq!(measured.costs(&group), [0.5, 0.75, 0.125, 0.0, 0.0]);
        // f16 is smaller than the source, and better than the base.
        let mut measured = measured;
        measured.errors.insert("q8_0".to_owned(), 0.1);
        measured.errors.insert("f16".to_owned(), 1e-6);
        let group = Group { source: DType::F32, ..group };
        assert!(measured.is_complete(&group, true));
        let costs = measured.costs(&group);
        assert!(costs[3] == 0.0 && costs[4] < 0.0, "{costs:?}");
    }

    #[test]
    fn differences_within_the_noise_count_as_half_of_it() {
        let group = group(&[DType::Q4_0, DType::Q8_0, DType::F16]);
        let errors = [(DType::Q4_0, 100.0), (DType::Q8_0, 0.0)];
        let measured = measured(&errors, &[(DType::Q4_0, [-0.5, 0.002])]);
        assert_eq!(measured.costs(&group).map_first(), 0.001f32);
        assert!(!Measured::default().is_complete(&group, false));
    }

    #[test]
    fn types_that_weights_are_too_large_for_are_never_the_best() {
        let group = group(&[DType::Q4_0, DType::Q8_0, DType::F16]);
        let group = Group { source: DType::F32, ..group };
        let errors = [(DType::Q4_0, 100.0), (DType::Q8_0, 1.0), (DType::F16, UNFIT_ERROR)];
        let measured = measured(&errors, &[(DType::Q4_0, [0.99, 0.001])]);
        let costs = measured.costs(&group);
        assert!(measured.is_unfit(DType::F16) && !measured.is_unfit(DType::Q8_0));
        assert!(costs[1].abs() < 1e-6 && costs[2] == UNFIT_COST, "{costs:?}");
    }

    #[test]
    fn a_model_in_the_types_of_the_source_has_no_divergence() {
        let free = group(&[DType::Q4_0, DType::Q8_0, DType::F16]);
        let named = group(&[DType::Q6K]);
        let groups = [free.clone(), named, free];
        let mut costs = vec![vec![1.0, 0.0, -0.01], vec![0.5], vec![0.8, 0.0, -0.03]];
        credit_floats(&groups, &mut costs, 0.06);
        let all = 0.06 + costs[0][2] + costs[2][2];
        assert!(all.abs() < 1e-12 && costs[0][..2] == [1.0, 0.0] && costs[1] == [0.5], "{costs:?}");
        // Errors of weights explain more than was measured.
        let mut costs = vec![vec![1.0, 0.0, -0.05], vec![0.5], vec![0.8, 0.0, -0.03]];
        credit_floats(&groups, &mut costs, 0.06);
        assert_eq!((costs[0][2], costs[2][2]), (-0.05, -0.03));
    }

    trait First {
        fn map_first(&self) -> f32;
    }

    impl First for Vec<f64> {
        fn map_first(&self) -> f32 {
            self[0] as f32
        }
    }
}
