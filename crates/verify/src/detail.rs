//! Data for the figures of a node, collected in the same pass as the statistics: distributions, an error map, the
//! worst elements.
//!
//! ```text
//!   element ─▶ z ───────────▶ linear bins (histogram), asinh bins (quantiles)
//!           ─▶ |R1|, |y-R1| ▶ bins of half a decade each
//!           ─▶ share ───────▶ the cell of its row and column (at most 64 x 48), the worst 20 elements
//! ```
//!
//! The share of an element is `max(|z| / 8, b)`; above 1, the element exceeds its limit. All values are counts, maxima
//! or lists with a total order, so they do not depend on the order of threads. Their size does not depend on the
//! model.

use crate::bound::Case;
use crate::element_inputs::{self, ElementInputs};
use crate::precision::LAMBDA;
use crate::record::Place;
use crate::statistics::{Expected, Worst};
use std::sync::Mutex;

/// Bins of the histogram of z, from -[`Z_LIMIT`] to it.
pub(crate) const Z_BINS: usize = 80;
/// Where the histogram of z ends; what lies beyond is counted on either side.
pub(crate) const Z_LIMIT: f64 = 10.0;
/// Bins of the logarithm of the expected magnitude, half a decade each, from 1e-6 on.
pub(crate) const MAGNITUDE_BINS: usize = 20;
/// Bins of the logarithm of the error, half a decade each, from 1e-14 on.
pub(crate) const ERROR_BINS: usize = 36;
const MAGNITUDE_MIN: f64 = -6.0;
const ERROR_MIN: f64 = -14.0;
/// Elements that are kept as the worst.
pub(crate) const WORST: usize = 20;
/// Cells of a map along a row of the result, and across rows.
const CELLS: [usize; 2] = [64, 48];
/// Bins of `asinh(z / 0.01)`, an eighth each, half of them below zero.
const FINE_BINS: usize = 384;
const FINE_UNIT: f64 = 0.01;
const FINE_STEP: f64 = 0.125;

/// One element, as far as figures need it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Element {
    /// Share of the gate, index, step, result and expected value.
    pub worst: Worst,
    /// Signed error in its standard deviations.
    pub z: f64,
    /// Error by its hard bound.
    pub bound: f64,
    /// Standard deviation that a right device has here.
    pub sigma: f64,
    /// Where it lies; known once the step is.
    pub place: Option<Place>,
    /// What it was computed from; known once the inputs were looked at.
    pub inputs: Option<Box<ElementInputs>>,
}

impl Element {
    /// An element with finite numbers, `z` without its sign.
    pub fn new(found: Worst, z: f64, bound: f64, expected: &Expected) -> Element {
        let signed = if found.device < found.expected { -z } else { z };
        let worst = Worst { ratio: (z / LAMBDA).max(bound), ..found };
        Element { worst, z: signed, bound, sigma: expected.sigma, place: None, inputs: None }
    }

    /// An element that is no number.
    pub fn broken(found: Worst, expected: &Expected) -> Element {
        let endless = f64::INFINITY;
        let worst = Worst { ratio: endless, ..found };
        Element { worst, z: f64::NAN, bound: endless, sigma: expected.sigma, place: None, inputs: None }
    }

    fn is_worse(&self, other: &Element) -> bool {
        let (own, others) = (&self.worst, &other.worst);
        own.ratio > others.ratio || (own.ratio == others.ratio && (own.step, own.index) < (others.step, others.index))
    }
}

/// What is known about one node in one phase.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Detail {
    /// Counts of z in linear bins.
    pub histogram: Vec<u64>,
    /// Counts of z below and above the histogram.
    pub beyond: [u64; 2],
    /// Elements that are no numbers where they should be.
    pub broken: u64,
    fine: Vec<u64>,
    /// Counts by magnitude and error, inside the gate and outside: `[magnitude][error]`, error innermost.
    pub scatter: Vec<[u32; 2]>,
    /// The largest error that the gate allows, by magnitude; 0 where there was nothing.
    pub allowed: Vec<f64>,
    /// The worst share by place.
    pub map: Map,
    /// The worst elements, the worst first.
    pub worst: Vec<Element>,
}

impl Detail {
    /// Nothing yet of a result with rows of `width` elements.
    pub fn new(width: usize, columns: usize) -> Detail {
        Detail {
            histogram: vec![0; Z_BINS],
            beyond: [0; 2],
            broken: 0,
            fine: vec![0; FINE_BINS],
            scatter: vec![[0; 2]; MAGNITUDE_BINS * ERROR_BINS],
            allowed: vec![0.0; MAGNITUDE_BINS],
            map: Map::new(width, columns),
            worst: Vec::with_capacity(WORST + 1),
        }
    }

    fn add(&mut self, Binned { element, bins }: Binned) {
        self.map.add(element.worst.index, element.worst.ratio);
        match bins {
            Some(bins) => self.count_in(&bins, element.worst.ratio > 1.0),
            None => self.broken += 1,
        }
        self.add_worst(element);
    }

    fn count_in(&mut self, bins: &Bins, is_outside: bool) {
        match bins.linear {
            Linear::Inside(bin) => self.histogram[bin] += 1,
            Linear::Beyond(side) => self.beyond[side] += 1,
        }
        self.fine[bins.fine] += 1;
        self.allowed[bins.magnitude] = self.allowed[bins.magnitude].max(bins.allowed);
        if let Some(error) = bins.error {
            let count = &mut self.scatter[bins.magnitude * ERROR_BINS + error][usize::from(is_outside)];
            *count = count.saturating_add(1);
        }
    }

    fn add_worst(&mut self, element: Element) {
        let full = self.worst.len() >= WORST;
        if element.worst.ratio == 0.0 || full && !self.worst.last().is_some_and(|last| element.is_worse(last)) {
            return;
        }
        let place = self.worst.partition_point(|known| !element.is_worse(known));
        self.worst.insert(place, element);
        self.worst.truncate(WORST);
    }

    /// Says where the worst elements lie.
    pub fn settle(&mut self, place: impl Fn(&Worst) -> Place) {
        for element in &mut self.worst {
            element.place = Some(place(&element.worst));
        }
    }

    /// Says what the worst elements were computed from.
    pub fn look_at_inputs(&mut self, case: &Case) {
        for element in &mut self.worst {
            element.inputs = element_inputs::of(case, element.worst.index).map(Box::new);
        }
    }

    /// Adds a later step's detail.
    pub fn merge(&mut self, other: Detail) {
        let add = |all: &mut Vec<u64>, more: &[u64]| all.iter_mut().zip(more).for_each(|(all, more)| *all += more);
        add(&mut self.histogram, &other.histogram);
        add(&mut self.fine, &other.fine);
        self.broken += other.broken;
        for side in 0..2 {
            self.beyond[side] += other.beyond[side];
        }
        for (all, more) in self.scatter.iter_mut().zip(&other.scatter) {
            *all = [all[0].saturating_add(more[0]), all[1].saturating_add(more[1])];
        }
        for (all, more) in self.allowed.iter_mut().zip(&other.allowed) {
            *all = all.max(*more);
        }
        self.map.append(&other.map);
        other.worst.into_iter().for_each(|element| self.add_worst(element));
    }

    /// Elements with a z.
    pub fn count(&self) -> u64 {
        self.fine.iter().sum()
    }

    /// z at the share `p` of all elements, in order of z; `None` where there is none. Exact to the width of a bin, an
    /// eighth of z.
    pub fn quantile(&self, p: f64) -> Option<f64> {
        let count = self.count();
        let rank = p * count as f64;
        let mut below = 0.0;
        for (bin, elements) in self.fine.iter().enumerate().filter(|(_, elements)| **elements > 0) {
            let elements = *elements as f64;
            if below + elements >= rank {
                let inside = ((rank - below) / elements).clamp(0.0, 1.0) - 0.5;
                let middle = bin as f64 - FINE_BINS as f64 / 2.0;
                let place = if middle == 0.0 { 0.0 } else { middle + inside };
                return Some((place * FINE_STEP).sinh() * FINE_UNIT);
            }
            below += elements;
        }
        None
    }
}

/// An element and where it is counted, which takes longer to find than to count.
#[derive(Clone, Debug)]
struct Binned {
    element: Element,
    /// `None` for values that are not finite.
    bins: Option<Bins>,
}

/// Where an element is counted.
#[derive(Clone, Copy, Debug)]
struct Bins {
    /// In the histogram of z.
    linear: Linear,
    /// Among the bins of `asinh(z / 0.01)`.
    fine: usize,
    /// Of the expected magnitude.
    magnitude: usize,
    /// Of the error; none where there is none.
    error: Option<usize>,
    /// The largest error that the gate allows here; 0 where that is not known.
    allowed: f64,
}

/// A bin of the histogram, or the side it is beyond: 0 below, 1 above.
#[derive(Clone, Copy, Debug)]
enum Linear {
    Inside(usize),
    Beyond(usize),
}

impl Binned {
    fn new(element: Element) -> Binned {
        let bins = (!element.z.is_nan()).then(|| Bins::of(&element));
        Binned { element, bins }
    }
}

impl Bins {
    fn of(element: &Element) -> Bins {
        let worst = &element.worst;
        let error = (worst.device - worst.expected).abs();
        // The share is linear in the error but for ties, so this is where it reaches 1.
        let allowed = if worst.ratio > 0.0 && worst.ratio.is_finite() { error / worst.ratio } else { 0.0 };
        Bins {
            linear: Linear::of(element.z),
            fine: fine(element.z),
            magnitude: half_decade(worst.expected.abs(), MAGNITUDE_MIN, MAGNITUDE_BINS),
            error: (error > 0.0).then(|| half_decade(error, ERROR_MIN, ERROR_BINS)),
            allowed,
        }
    }
}

impl Linear {
    fn of(z: f64) -> Linear {
        let bin = ((z + Z_LIMIT) / (2.0 * Z_LIMIT) * Z_BINS as f64).floor();
        if bin < 0.0 {
            Linear::Beyond(0)
        } else if bin >= Z_BINS as f64 {
            Linear::Beyond(1)
        } else {
            Linear::Inside(bin as usize)
        }
    }
}

/// The bin of `asinh(z / 0.01)`.
fn fine(z: f64) -> usize {
    let half = FINE_BINS as f64 / 2.0;
    // Many are exact, and an asinh takes long.
    let place = if z == 0.0 { half } else { (z / FINE_UNIT).asinh() / FINE_STEP + half };
    place.round().clamp(0.0, FINE_BINS as f64 - 1.0) as usize
}

/// The bin of half a decade that a positive number lies in, of those from `10^min` on.
fn half_decade(value: f64, min: f64, bins: usize) -> usize {
    (((value.log10() - min) * 2.0).floor().max(0.0) as usize).min(bins - 1)
}

/// The largest share of the gate by place: cells of equally many rows and columns, of which there are as many as fit.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Map {
    /// Elements of a row of the result, and rows of it over all steps.
    pub sizes: [usize; 2],
    /// Elements and rows in one cell.
    pub steps: [usize; 2],
    /// The largest share in each cell, elements innermost; below zero where nothing was looked at.
    cells: Vec<f32>,
}

impl Map {
    fn new(width: usize, columns: usize) -> Map {
        let sizes = [width.max(1), columns.max(1)];
        let steps = [0, 1].map(|axis| step(sizes[axis], CELLS[axis]));
        Map { sizes, steps, cells: vec![-1.0; CELLS[0] * CELLS[1]] }
    }

    fn add(&mut self, index: usize, share: f64) {
        let place = [index % self.sizes[0] / self.steps[0], index / self.sizes[0] / self.steps[1]];
        self.raise(place, share as f32);
    }

    fn raise(&mut self, place: [usize; 2], share: f32) {
        if let Some(cell) = self.cells.get_mut(place[1] * CELLS[0] + place[0]) {
            *cell = cell.max(share);
        }
    }

    /// Appends the rows of another map.
    fn append(&mut self, other: &Map) {
        let behind = self.sizes[1];
        let sizes = [self.sizes[0].max(other.sizes[0]), behind.saturating_add(other.sizes[1])];
        let steps = [0, 1].map(|axis| step(sizes[axis], CELLS[axis]).max(self.steps[axis]).max(other.steps[axis]));
        let mut all = Map { sizes, steps, cells: vec![-1.0; self.cells.len()] };
        for (map, offset) in [(&*self, 0), (other, behind)] {
            for (index, share) in map.cells.iter().enumerate().filter(|(_, share)| **share >= 0.0) {
                let [x, y] = [index % CELLS[0] * map.steps[0], index / CELLS[0] * map.steps[1] + offset];
                all.raise([x / steps[0], y / steps[1]], *share);
            }
        }
        *self = all;
    }

    /// Cells along a row and across.
    pub fn cells(&self) -> [usize; 2] {
        [0, 1].map(|axis| self.sizes[axis].div_ceil(self.steps[axis]))
    }

    /// The largest share in a cell; `None` where nothing was looked at.
    pub fn share(&self, x: usize, y: usize) -> Option<f32> {
        self.cells.get(y * CELLS[0] + x).copied().filter(|share| *share >= 0.0)
    }
}

/// The smallest power of two that leaves at most `cells` cells.
fn step(size: usize, cells: usize) -> usize {
    size.div_ceil(cells).max(1).next_power_of_two()
}

/// Where pieces of one result, judged on several threads, leave their elements.
#[derive(Debug)]
pub(crate) struct DetailCollector(Mutex<Detail>);

/// Elements that a piece keeps before it waits for its turn.
const PENDING: usize = 1024;

impl DetailCollector {
    /// A collector for a result of `rows` rows of `width` elements.
    pub fn new(width: usize, rows: usize) -> DetailCollector {
        DetailCollector(Mutex::new(Detail::new(width, rows)))
    }

    /// Everything that was left.
    pub fn finish(self) -> Detail {
        self.0.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn add(&self, elements: &mut Vec<Binned>) {
        let mut detail = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        elements.drain(..).for_each(|element| detail.add(element));
    }
}

/// A piece's way to the collector.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending<'a> {
    collector: Option<&'a DetailCollector>,
    elements: Vec<Binned>,
}

impl<'a> Pending<'a> {
    /// A way to `collector`.
    pub fn to(collector: &'a DetailCollector) -> Pending<'a> {
        Pending { collector: Some(collector), elements: Vec::new() }
    }

    /// Another piece's way to the same collector.
    pub fn beside(&self) -> Pending<'a> {
        Pending { collector: self.collector, elements: Vec::new() }
    }

    /// Leaves an element.
    pub fn push(&mut self, element: impl FnOnce() -> Element) {
        let Some(collector) = self.collector else { return };
        self.elements.push(Binned::new(element()));
        if self.elements.len() >= PENDING {
            collector.add(&mut self.elements);
        }
    }

    /// Leaves what is still kept.
    pub fn finish(mut self) {
        if let Some(collector) = self.collector.filter(|_| !self.elements.is_empty()) {
            collector.add(&mut self.elements);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(index: usize, z: f64) -> Element {
        let expected =
            Expected { exact: 1.0, declared: 1.0, sigma: 0.5, sigma_exact: 0.5, bound: 100.0, ties: 0.0, coarse: 1.0 };
        let found = Worst { ratio: 0.0, index, step: 0, device: 1.0 + z * 0.5, expected: 1.0 };
        Element::new(found, z.abs(), z.abs() / 200.0, &expected)
    }

    fn detail(width: usize, rows: usize, elements: impl Iterator<Item = Element>) -> Detail {
        let collector = DetailCollector::new(width, rows);
        let mut pending = Pending::to(&collector);
        elements.for_each(|element| pending.push(|| element));
        pending.finish();
        collector.finish()
    }

    #[test]
    fn quantiles_of_the_normal_distribution_come_back() {
        // scipy.stats.norm.ppf of 0.001, 0.1, 0.5, 0.975: the inputs are the ppf of 20000 equal shares, from its
        // published inverse.
        let ppf = |p: f64| {
            let (mut low, mut high) = (-9.0f64, 9.0f64);
            for _ in 0..60 {
                let middle = (low + high) / 2.0;
                if crate::tokens::normal_below(middle) < p { low = middle } else { high = middle }
            }
            low
        };
        let all = detail(100, 200, (0..20_000).map(|i| element(i, ppf((i as f64 + 0.5) / 20_000.0))));
        for (p, expected) in [(0.001, -3.0902), (0.1, -1.2816), (0.5, 0.0), (0.975, 1.9600)] {
            let found = all.quantile(p).unwrap();
            assert!((found - expected).abs() < 0.03, "{p}: {found} for {expected}");
        }
        assert_eq!((all.count(), all.histogram.iter().sum::<u64>(), all.beyond), (20_000, 20_000, [0, 0]));
        assert!((all.histogram[40] as f64 / 20_000.0 - 0.0987).abs() < 0.001, "the share of 0 <= z < 0.25");
    }

    #[test]
    fn any_order_and_any_pieces_give_the_same_detail() {
        let values = |i: usize| ((i * 7919) % 1000) as f64 / 40.0 - 12.0;
        let forwards = detail(50, 20, (0..1000).map(|i| element(i, values(i))));
        let backwards = detail(50, 20, (0..1000).rev().map(|i| element(i, values(i))));
        assert_eq!(forwards, backwards);
        assert!(forwards.beyond.iter().all(|count| *count > 0));
        assert_eq!(forwards.worst.len(), WORST);
        assert!(forwards.worst.is_sorted_by(|a, b| a.worst.ratio >= b.worst.ratio));
    }

    #[test]
    fn a_map_keeps_the_worst_of_each_cell_and_grows_by_steps() {
        let mut all = detail(2048, 3, [element(2048 + 1920, 80.0), element(2048 + 1921, 8.0)].into_iter());
        assert_eq!((all.map.cells(), all.map.steps), ([64, 3], [32, 1]));
        assert_eq!((all.map.share(60, 1), all.map.share(60, 0)), (Some(10.0), None));
        for _ in 0..50 {
            all.merge(detail(2048, 1, [element(0, 4.0)].into_iter()));
        }
        assert_eq!((all.map.sizes, all.map.cells()), ([2048, 53], [64, 27]));
        assert_eq!((all.map.share(60, 0), all.map.share(0, 26)), (Some(10.0), Some(0.5)));
    }

    #[test]
    fn errors_are_sorted_by_magnitude_and_what_is_no_number_is_counted() {
        let mut one = detail(4, 1, [element(0, 0.0), element(1, 4e-3), element(2, 16.0)].into_iter());
        let filled: Vec<_> = one.scatter.iter().enumerate().filter(|(_, counts)| **counts != [0, 0]).collect();
        assert_eq!(filled, [(12 * ERROR_BINS + 22, &[1, 0]), (12 * ERROR_BINS + 29, &[0, 1])]);
        assert!((one.allowed[12] - 4.0).abs() < 1e-9, "8 standard deviations, not {}", one.allowed[12]);
        let found = Worst { ratio: 0.0, index: 3, step: 0, device: f64::NAN, expected: 1.0 };
        one.add(Binned::new(Element::broken(found, &Expected::same(1.0, 1.0))));
        assert_eq!((one.broken, one.count(), one.worst[0].worst.index), (1, 3, 3));
        assert_eq!(one.map.share(3, 0), Some(f32::INFINITY));
    }
}
