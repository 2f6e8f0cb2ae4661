//! What one streaming pass over a result learns: how far each element is from both references, measured by its own
//! noise.
//!
//! ```text
//!   element y ─┬─ not a number, infinite, never written?          counted first
//!              ├─ z = (|y - R1| - ties) / sigma    b = |y - R1| / B    worst of each, with its place
//!              └─ sums: z^2, (y - R0)^2, R0^2, y R0, (R0 - reference)^2 ...      averages last
//! ```

use crate::collector::Collector;
use crate::detail::{Detail, DetailCollector, Element, Pending};
use crate::operand::is_unwritten;
use crate::precision::{LAMBDA, Precision};
use crate::samples::Samples;

/// What an element should be, by both references, and how far a right device may be away.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Expected {
    /// R0: the operator in f64 on the inputs as they are.
    pub exact: f64,
    /// R1: the same with the rounding that the device declares.
    pub declared: f64,
    /// Standard deviation of the device around R1.
    pub sigma: f64,
    /// Standard deviation of the device around R0: that of R1 and the declared loss.
    pub sigma_exact: f64,
    /// What no right device exceeds around R1, `B`.
    pub bound: f64,
    /// How far ties in the declared rounding may move the result away from R1.
    pub ties: f64,
    /// What an undeclared rounding of inputs or results to about 8 bits could cause at most: errors beyond it are of
    /// another kind.
    pub coarse: f64,
}

impl Expected {
    /// A result without any arithmetic: `declared` bit for bit.
    pub fn same(exact: f64, declared: f64) -> Expected {
        Expected { exact, declared, sigma: 0.0, sigma_exact: 0.0, bound: 0.0, ties: 0.0, coarse: 0.0 }
    }

    /// A result of few roundings: within `bound` of `exact`, of which half is likely.
    pub fn within(exact: f64, bound: f64, coarse: f64) -> Expected {
        let sigma = bound / LAMBDA;
        Expected { exact, declared: exact, sigma, sigma_exact: sigma, bound, ties: 0.0, coarse }
    }
}

/// An element, its expectation and how bad it is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Worst {
    /// z or b, whichever this is the worst of.
    pub ratio: f64,
    /// The element's place in the result, counted innermost first.
    pub index: usize,
    /// The step of the run; 0 is the prompt.
    pub step: usize,
    /// What the device has.
    pub device: f64,
    /// What it should be as declared.
    pub expected: f64,
}

impl Worst {
    fn keep(slot: &mut Option<Worst>, found: Worst) {
        if slot.is_none_or(|worst| found.ratio > worst.ratio) {
            *slot = Some(found);
        }
    }
}

/// Counts of results that are no finite numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Broken {
    /// Elements that nothing was written to.
    pub unwritten: u64,
    /// NaN where the reference has a number.
    pub nan: u64,
    /// Infinite where the reference has a number of the result's range, or not infinite in the same way where the
    /// reference is.
    pub infinite: u64,
    /// Infinite where the reference, or what rounding may make of it, is beyond the range of the declared type.
    pub range_exceeded: u64,
    /// The reference itself is not a number, because the device's inputs are not: nothing can be said.
    pub undefined: u64,
}

/// Sums and extremes over the elements of one node, in one or many steps.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Statistics {
    /// Elements looked at.
    pub elements: u64,
    /// Elements equal to R1, zeros of either sign being the same; in f64 those equal to the free-running reference too.
    pub equal: u64,
    /// Results that are no finite numbers.
    pub broken: Broken,
    /// The first element that was not written, is NaN or is infinite without reason.
    pub first_broken: Option<Worst>,
    /// Elements that differed when the node was computed again on the same inputs.
    pub unsteady: u64,
    /// Those of them that differed by far more than their noise.
    pub raced: u64,
    /// The first of these.
    pub first_raced: Option<Worst>,
    /// Their largest spread, by what an undeclared rounding to about 8 bits could cause at most.
    pub worst_spread: f64,
    /// The largest |z|.
    pub worst_z: Option<Worst>,
    /// The largest b.
    pub worst_bound: Option<Worst>,
    /// The largest share of the coarse bound.
    pub worst_coarse: f64,
    /// The largest |z| against R0.
    pub worst_z_exact: f64,
    /// Largest |y - R0|.
    pub max_abs: f64,
    noisy: u64,
    samples: Samples,
    z_squares: f64,
    z_exact_squares: f64,
    loss_squares: f64,
    pub(crate) squares: Squares,
    /// What figures are drawn from, of one step; [`Statistics::merge`] leaves it.
    pub(crate) detail: Option<Box<Detail>>,
}

/// Sums of squares for averages.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Squares {
    pub(crate) local: f64,
    pub(crate) exact: f64,
    pub(crate) device: f64,
    pub(crate) product: f64,
    pub(crate) inherited: f64,
    pub(crate) total: f64,
    pub(crate) reference: f64,
    pub(crate) compared: u64,
    /// Sum of the squares of `sigma` and of the declared loss, R1 - R0.
    pub(crate) noise: f64,
}

impl Statistics {
    /// The worst element: one that is no number, one that differs from run to run, or that with the largest |z|.
    pub(crate) fn worst(&self) -> Option<Worst> {
        self.first_broken.or(self.first_raced).or(self.worst_z)
    }

    /// Root of the mean square of z; 0 where no element has noise.
    pub fn rms_z(&self) -> f64 {
        root_mean(self.z_squares, self.noisy)
    }

    /// The same against R0.
    pub fn rms_z_exact(&self) -> f64 {
        root_mean(self.z_exact_squares, self.noisy)
    }

    /// Root of the mean square of `(R1 - R0) / sigma`: how far the declared loss itself is from R0 on these inputs.
    pub fn rms_loss(&self) -> f64 {
        root_mean(self.loss_squares, self.noisy)
    }

    /// Elements whose result has noise, each value that comes again counted once as long as they are few.
    pub fn samples(&self) -> u64 {
        self.samples.distinct().unwrap_or(self.noisy)
    }

    /// `sum (y - R0)^2 / sum R0^2`; 0 where both are 0.
    pub fn nmse(&self) -> f64 {
        ratio(self.squares.local, self.squares.exact)
    }

    /// Cosine of the angle between the result and R0; 1 where both are 0, 0 where one of them is.
    pub fn cosine(&self) -> f64 {
        let lengths = (self.squares.exact * self.squares.device).sqrt();
        let both_zero = self.squares.exact == 0.0 && self.squares.device == 0.0;
        if lengths > 0.0 { self.squares.product / lengths } else { f64::from(u8::from(both_zero)) }
    }

    /// Relative root mean square of the local error, `y - f(x)`, to the reference's result.
    pub fn local(&self) -> f64 {
        ratio(self.squares.local, self.squares.exact).sqrt()
    }

    /// The local error that the declared arithmetic must cause, relative as [`Statistics::local`] is.
    pub fn local_expected(&self) -> f64 {
        ratio(self.squares.noise, self.squares.exact).sqrt()
    }

    /// Relative root mean square of the inherited error, `f(x device) - f(x reference)`.
    pub fn inherited(&self) -> f64 {
        ratio(self.squares.inherited, self.squares.reference).sqrt()
    }

    /// Relative root mean square of the whole error, `y device - y reference`.
    pub fn total(&self) -> f64 {
        ratio(self.squares.total, self.squares.reference).sqrt()
    }

    /// Whether any element was compared with a free-running reference.
    pub fn compared(&self) -> bool {
        self.squares.compared > 0
    }

    /// Adds what `other` learnt, which lies behind these elements.
    pub fn merge(&mut self, other: &Statistics) {
        self.elements += other.elements;
        self.equal += other.equal;
        self.broken.unwritten += other.broken.unwritten;
        self.broken.nan += other.broken.nan;
        self.broken.infinite += other.broken.infinite;
        self.broken.range_exceeded += other.broken.range_exceeded;
        self.broken.undefined += other.broken.undefined;
        self.first_broken = self.first_broken.or(other.first_broken);
        self.unsteady += other.unsteady;
        self.raced += other.raced;
        self.first_raced = self.first_raced.or(other.first_raced);
        self.worst_spread = self.worst_spread.max(other.worst_spread);
        if let Some(worst) = other.worst_z {
            Worst::keep(&mut self.worst_z, worst);
        }
        if let Some(worst) = other.worst_bound {
            Worst::keep(&mut self.worst_bound, worst);
        }
        self.worst_coarse = self.worst_coarse.max(other.worst_coarse);
        self.worst_z_exact = self.worst_z_exact.max(other.worst_z_exact);
        self.max_abs = self.max_abs.max(other.max_abs);
        self.noisy += other.noisy;
        self.samples.merge(&other.samples);
        self.z_squares += other.z_squares;
        self.z_exact_squares += other.z_exact_squares;
        self.loss_squares += other.loss_squares;
        self.squares.merge(&other.squares);
    }
}

impl Squares {
    fn merge(&mut self, other: &Squares) {
        self.local += other.local;
        self.exact += other.exact;
        self.device += other.device;
        self.product += other.product;
        self.inherited += other.inherited;
        self.total += other.total;
        self.reference += other.reference;
        self.compared += other.compared;
        self.noise += other.noise;
    }
}

fn root_mean(squares: f64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { (squares / count as f64).sqrt() }
}

fn ratio(error: f64, reference: f64) -> f64 {
    if error == 0.0 { 0.0 } else { error / reference }
}

/// Counts elements of one node's result in one step.
#[derive(Clone, Debug)]
pub struct Tally<'a> {
    step: usize,
    output: Precision,
    device: &'a [f64],
    reference: Option<&'a [f64]>,
    spread: &'a [f64],
    collector: Option<&'a Collector>,
    collected: Vec<(usize, Expected)>,
    statistics: Statistics,
    pending: Pending<'a>,
}

impl<'a> Tally<'a> {
    /// A tally of the result `device`, of declared precision `output`, in step `step`; `reference` is the result of the
    /// free-running reference, element for element.
    pub fn new(step: usize, output: Precision, device: &'a [f64], reference: Option<&'a [f64]>) -> Tally<'a> {
        let (spread, collector, collected) = (&[] as &[f64], None, Vec::new());
        let (statistics, pending) = (Statistics::default(), Pending::default());
        Tally { step, output, device, reference, spread, collector, collected, pending, statistics }
    }

    /// The same for a device that does not repeat its results: `spread` is the standard deviation of each element over
    /// computations on the same inputs, or empty. It joins the noise of its element, but by no more than the declared
    /// noise; an element whose spread is far larger counts as raced (docs/numerics.md#repetition-and-batches).
    #[must_use]
    pub fn spreading(self, spread: &'a [f64]) -> Tally<'a> {
        Tally { spread, ..self }
    }

    /// The same tally, which also hands what each element should be to `collector`.
    #[must_use]
    pub fn collecting(self, collector: Option<&'a Collector>) -> Tally<'a> {
        Tally { collector, ..self }
    }

    /// The same tally, which leaves its elements with `collector` too.
    pub(crate) fn detailed(self, collector: &'a DetailCollector) -> Tally<'a> {
        Tally { pending: Pending::to(collector), ..self }
    }

    /// An empty tally of the same result.
    pub fn beside(&self) -> Tally<'a> {
        let pending = self.pending.beside();
        Tally { statistics: Statistics::default(), collected: Vec::new(), pending, ..*self }
    }

    /// What was learnt.
    pub fn finish(self) -> Statistics {
        if let Some(collector) = self.collector {
            collector.keep(&self.collected);
        }
        self.pending.finish();
        self.statistics
    }

    /// Adds element `index` of the result.
    pub fn add(&mut self, index: usize, expected: &Expected) {
        let reference = self.reference.map(|reference| reference[index]);
        self.add_value(index, self.device[index], expected, reference);
    }

    /// Adds an element whose value is not in the slices of this tally.
    pub fn add_value(&mut self, index: usize, device: f64, expected: &Expected, reference: Option<f64>) {
        self.add_element(index, device, expected, reference, true);
    }

    /// Adds element `index` of the result, which is computed from the same numbers as one that was added before: its
    /// error is no further sample of the noise and counts as the worst element only.
    pub fn add_copy(&mut self, index: usize, expected: &Expected) {
        let reference = self.reference.map(|reference| reference[index]);
        self.add_element(index, self.device[index], expected, reference, false);
    }

    /// Adds an element whose error goes together with others': it is no sample of the noise and counts as the worst
    /// element only.
    pub fn add_correlated(&mut self, index: usize, device: f64, expected: &Expected) {
        self.add_element(index, device, expected, None, false);
    }

    fn add_element(
        &mut self,
        index: usize,
        device: f64,
        expected: &Expected,
        reference: Option<f64>,
        independent: bool,
    ) {
        self.statistics.elements += 1;
        let expected = &self.spread_out(index, device, expected);
        if self.collector.is_some() {
            self.collected.push((index, *expected));
        }
        if device.is_finite() && expected.declared.is_finite() {
            self.add_finite(index, device, expected, reference, independent);
            self.add_averages(device, expected, reference);
        } else {
            self.add_broken(index, device, expected);
        }
    }

    /// The expectation with the spread of element `index` in its noise.
    fn spread_out(&mut self, index: usize, device: f64, expected: &Expected) -> Expected {
        let spread = self.spread.get(index).copied().unwrap_or(0.0);
        if spread == 0.0 {
            return *expected;
        }
        self.statistics.unsteady += 1;
        // A spread that is no number is beyond any noise.
        if spread.is_nan() || spread > LAMBDA * expected.sigma {
            self.statistics.raced += 1;
            let found = self.worst(f64::INFINITY, index, device, expected);
            self.statistics.first_raced.get_or_insert(found);
            let coarse = if spread.is_nan() { f64::INFINITY } else { share(spread, expected.coarse) };
            self.statistics.worst_spread = self.statistics.worst_spread.max(coarse);
        }
        let joined = |sigma: f64| sigma.hypot(spread.min(sigma));
        Expected { sigma: joined(expected.sigma), sigma_exact: joined(expected.sigma_exact), ..*expected }
    }

    /// Adds an element for which the operator has no value on inputs that are numbers, such as the root of -1: NaN is
    /// right, and any number infinitely far away.
    pub fn add_no_number(&mut self, index: usize) {
        let device = self.device[index];
        let none = Expected::same(f64::NAN, f64::NAN);
        self.statistics.elements += 1;
        if is_unwritten(device) {
            self.statistics.broken.unwritten += 1;
            let found = self.worst(f64::INFINITY, index, device, &none);
            self.statistics.first_broken.get_or_insert(found);
        } else if device.is_nan() {
            self.statistics.equal += 1;
        } else {
            let found = self.worst(f64::INFINITY, index, device, &none);
            Worst::keep(&mut self.statistics.worst_z, found);
            Worst::keep(&mut self.statistics.worst_bound, found);
        }
    }

    /// Adds `count` elements that are bit for bit what they should be and stand for nothing else.
    pub fn add_untouched(&mut self, count: usize) {
        self.statistics.elements += count as u64;
        self.statistics.equal += count as u64;
    }

    fn worst(&self, ratio: f64, index: usize, device: f64, expected: &Expected) -> Worst {
        Worst { ratio, index, step: self.step, device, expected: expected.declared }
    }

    fn add_finite(
        &mut self,
        index: usize,
        device: f64,
        expected: &Expected,
        reference: Option<f64>,
        independent: bool,
    ) {
        let error = (device - expected.declared).abs();
        // Two evaluations in f64 may differ in their last bit; an f64 device that agrees with the other one is exact
        // too.
        let same = self.output == Precision::F64 && reference == Some(device) && error <= expected.bound;
        let equal = error == 0.0 || same;
        self.statistics.equal += u64::from(equal);
        let untied = |error: f64| if error <= expected.ties { 0.0 } else { error - expected.ties };
        let z = share(untied(error), expected.sigma);
        let bound = share(error, expected.bound);
        let found = self.worst(z, index, device, expected);
        Worst::keep(&mut self.statistics.worst_z, found);
        Worst::keep(&mut self.statistics.worst_bound, Worst { ratio: bound, ..found });
        self.pending.push(|| {
            if equal { Element::new(found, 0.0, 0.0, expected) } else { Element::new(found, z, bound, expected) }
        });
        let statistics = &mut self.statistics;
        statistics.worst_coarse = statistics.worst_coarse.max(share(error, expected.coarse));
        if independent && expected.sigma > 0.0 && expected.sigma_exact > 0.0 {
            let exact = untied((device - expected.exact).abs()) / expected.sigma_exact;
            let loss = (expected.declared - expected.exact) / expected.sigma_exact;
            statistics.noisy += 1;
            statistics.samples.add(expected.declared);
            statistics.z_squares += z * z;
            statistics.z_exact_squares += exact * exact;
            statistics.loss_squares += loss * loss;
            statistics.worst_z_exact = statistics.worst_z_exact.max(exact);
        }
    }

    fn add_averages(&mut self, device: f64, expected: &Expected, reference: Option<f64>) {
        let local = device - expected.exact;
        let statistics = &mut self.statistics;
        statistics.max_abs = statistics.max_abs.max(local.abs());
        let squares = &mut statistics.squares;
        squares.local += local * local;
        let loss = expected.declared - expected.exact;
        squares.noise += expected.sigma * expected.sigma + loss * loss;
        squares.exact += expected.exact * expected.exact;
        squares.device += device * device;
        squares.product += device * expected.exact;
        if let Some(reference) = reference.filter(|reference| reference.is_finite()) {
            let (inherited, total) = (expected.exact - reference, device - reference);
            squares.inherited += inherited * inherited;
            squares.total += total * total;
            squares.reference += reference * reference;
            squares.compared += 1;
        }
    }

    fn add_broken(&mut self, index: usize, device: f64, expected: &Expected) {
        let beyond = expected.exact.is_finite()
            && expected.exact.abs() + expected.bound > self.output.max
            && device == expected.exact.signum() * f64::INFINITY;
        let same_infinity = device.is_infinite() && device == expected.declared;
        let broken = &mut self.statistics.broken;
        // What was not written before is handed on by right operators: the node that left it is named, not those behind
        // it.
        let counter = if expected.declared.is_nan() {
            broken.undefined += 1;
            return;
        } else if is_unwritten(device) {
            &mut broken.unwritten
        } else if same_infinity && !expected.exact.is_finite() {
            self.statistics.equal += 1;
            return;
        } else if same_infinity || beyond {
            broken.range_exceeded += 1;
            return;
        } else if device.is_nan() {
            &mut broken.nan
        } else {
            &mut broken.infinite
        };
        *counter += 1;
        let found = self.worst(f64::INFINITY, index, device, expected);
        self.statistics.first_broken.get_or_insert(found);
        self.pending.push(|| Element::broken(found, expected));
    }
}

/// `error / limit`; where nothing is allowed, any error is infinitely too large.
fn share(error: f64, limit: f64) -> f64 {
    if error == 0.0 {
        0.0
    } else if limit > 0.0 && !error.is_nan() {
        error / limit
    } else {
        f64::INFINITY
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operand::UNWRITTEN;

    fn noise(declared: f64) -> Expected {
        Expected { exact: 1.0, declared, sigma: 0.5, sigma_exact: 2.0, bound: 4.0, ties: 0.0, coarse: 100.0 }
    }

    fn tally<'a>(device: &'a [f64], reference: Option<&'a [f64]>) -> Tally<'a> {
        Tally::new(3, Precision::F32, device, reference)
    }

    #[test]
    fn z_and_b_are_measured_from_the_declared_reference_and_keep_their_place() {
        let mut tally = tally(&[2.0, 3.0, 2.25], None);
        for index in 0..3 {
            tally.add(index, &noise(2.0));
        }
        let found = tally.finish();
        assert_eq!((found.elements, found.equal, found.noisy), (3, 1, 3));
        let worst = found.worst_z.unwrap();
        assert_eq!((worst.ratio, worst.index, worst.step, worst.device, worst.expected), (2.0, 1, 3, 3.0, 2.0));
        assert_eq!(found.worst_bound.unwrap().ratio, 0.25);
        assert!((found.rms_z() - (4.25f64 / 3.0).sqrt()).abs() < 1e-15);
        assert_eq!(found.rms_loss(), 0.5);
        assert_eq!(found.max_abs, 2.0);
    }

    #[test]
    fn ties_are_taken_off_before_the_noise_is_asked() {
        let mut tally = tally(&[3.0], None);
        tally.add(0, &Expected { ties: 0.75, ..noise(2.0) });
        assert_eq!(tally.finish().worst_z.unwrap().ratio, 0.5);
    }

    #[test]
    fn what_is_no_number_is_counted_by_kind() {
        let device = [UNWRITTEN, f64::NAN, f64::INFINITY, f64::INFINITY, f64::NAN, f64::NEG_INFINITY];
        let mut tally = tally(&device, None);
        let beyond = Expected { exact: 1e39, declared: 1e39, ..noise(0.0) };
        let undefined = Expected { exact: f64::NAN, declared: f64::NAN, ..noise(0.0) };
        let infinite = Expected { exact: f64::NEG_INFINITY, declared: f64::NEG_INFINITY, ..noise(0.0) };
        for (index, expected) in [noise(1.0), noise(1.0), noise(1.0), beyond, undefined, infinite].iter().enumerate() {
            tally.add(index, expected);
        }
        let found = tally.finish();
        let broken = Broken { unwritten: 1, nan: 1, infinite: 1, range_exceeded: 1, undefined: 1 };
        assert_eq!((found.broken, found.equal), (broken, 1));
        assert_eq!(found.first_broken.unwrap().index, 0);
    }

    #[test]
    fn infinities_match_in_place_and_sign() {
        let infinite = Expected { exact: f64::INFINITY, declared: f64::INFINITY, ..noise(0.0) };
        let overflowed = Expected { exact: 1.0, declared: f64::INFINITY, ..noise(0.0) };
        let one = |device: f64, expected: &Expected| {
            let device = [device];
            let mut tally = tally(&device, None);
            tally.add(0, expected);
            tally.finish()
        };
        let equal = one(f64::INFINITY, &infinite);
        assert_eq!((equal.broken, equal.equal), (Broken::default(), 1));
        assert_eq!(one(f64::NEG_INFINITY, &infinite).broken, Broken { infinite: 1, ..Broken::default() });
        assert_eq!(one(f64::NAN, &infinite).broken, Broken { nan: 1, ..Broken::default() });
        assert_eq!(one(1.0, &infinite).broken, Broken { infinite: 1, ..Broken::default() });
        let exceeded = one(f64::INFINITY, &overflowed);
        assert_eq!(exceeded.broken, Broken { range_exceeded: 1, ..Broken::default() });
        assert_eq!(exceeded.first_broken, None, "declared, so no fault");
        let beyond = Expected { exact: -1e39, declared: -1e39, ..noise(0.0) };
        assert_eq!(one(f64::INFINITY, &beyond).broken, Broken { infinite: 1, ..Broken::default() });
        let undefined = one(1.0, &Expected { exact: f64::NAN, declared: f64::NAN, ..noise(0.0) });
        assert_eq!((undefined.broken.undefined, undefined.first_broken), (1, None));
    }

    #[test]
    fn copies_are_no_further_samples_of_the_noise() {
        let mut tally = tally(&[2.5, 2.5, 4.0], None);
        tally.add(0, &noise(2.0));
        tally.add_copy(1, &noise(2.0));
        tally.add_copy(2, &noise(2.0));
        let found = tally.finish();
        assert_eq!((found.elements, found.noisy, found.rms_z()), (3, 1, 1.0));
        assert_eq!(found.worst_z.map(|worst| (worst.index, worst.ratio)), Some((2, 4.0)));
    }

    #[test]
    fn an_error_where_none_is_allowed_is_infinitely_bad() {
        let mut tally = tally(&[1.0, 1.0 + 1e-7], None);
        tally.add(0, &Expected::same(1.0, 1.0));
        tally.add(1, &Expected::same(1.0, 1.0));
        let found = tally.finish();
        assert_eq!(found.worst_z.unwrap().ratio, f64::INFINITY);
        assert_eq!(found.worst_z.unwrap().index, 1);
    }

    #[test]
    fn local_and_inherited_errors_add_up_exactly() {
        // y = 3, f(x device) = 2, y reference = 1: local 1, inherited 1, total 2.
        let mut tally = tally(&[3.0], Some(&[1.0]));
        tally.add(0, &Expected::within(2.0, 4.0, 8.0));
        let found = tally.finish();
        assert_eq!((found.squares.local, found.squares.inherited, found.squares.total), (1.0, 1.0, 4.0));
        assert_eq!((found.local(), found.inherited(), found.total()), (0.5, 1.0, 2.0));
    }

    #[test]
    fn merging_is_adding_in_order() {
        let device = [2.0, 3.5, 1.0, f64::NAN];
        let mut all = tally(&device, None);
        let (mut first, mut second) = (all.beside(), all.beside());
        for index in 0..4 {
            all.add(index, &noise(2.0));
            if index < 2 { first.add(index, &noise(2.0)) } else { second.add(index, &noise(2.0)) }
        }
        let mut merged = first.finish();
        merged.merge(&second.finish());
        // NaN is equal to nothing, so the text is compared.
        assert_eq!(format!("{merged:?}"), format!("{:?}", all.finish()));
    }

    #[test]
    fn spread_joins_the_noise_up_to_what_is_declared_and_counts_as_raced_far_beyond() {
        let z = |spread: &[f64]| {
            let mut tally = tally(&[3.0], None).spreading(spread);
            tally.add(0, &noise(1.0));
            let found = tally.finish();
            (found.worst_z.unwrap().ratio, found.unsteady, found.raced)
        };
        assert_eq!(z(&[]), (4.0, 0, 0));
        assert_eq!(z(&[0.0]), (4.0, 0, 0));
        assert_eq!(z(&[0.375]), (2.0 / 0.625, 1, 0));
        let widest = 2.0 / (0.5 * std::f64::consts::SQRT_2);
        for (spread, raced) in [(3.9, 0), (4.1, 1), (f64::NAN, 1)] {
            let (ratio, unsteady, found) = z(&[spread]);
            assert!((ratio - widest).abs() < 1e-12, "{spread}: {ratio}");
            assert_eq!((unsteady, found), (1, raced), "{spread}");
        }
    }

    #[test]
    fn a_result_that_rounding_may_put_beyond_the_range_may_be_infinite() {
        let (max, infinity) = (f64::from(f32::MAX), f64::INFINITY);
        let device = [infinity, infinity, -infinity];
        let mut tally = tally(&device, None);
        for (index, exact) in [max * (1.0 - 1e-7), max * (1.0 - 1e-3), max * (1.0 - 1e-7)].into_iter().enumerate() {
            tally.add(index, &Expected::within(exact, exact * 2e-7, 0.0));
        }
        let broken = tally.finish().broken;
        assert_eq!((broken.range_exceeded, broken.infinite), (1, 2));
    }
}
