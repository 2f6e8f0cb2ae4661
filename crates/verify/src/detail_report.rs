//! A node's detail as it is written to JSON and drawn: distributions in few numbers, a map in one character a cell.

use crate::detail::{Detail, ERROR_BINS, Element, MAGNITUDE_BINS, Map, Z_LIMIT};
use crate::element_inputs::ElementInputs;
use crate::tokens::normal_below;
use serde::Serialize;

/// What figures about one node in one phase are drawn from.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DetailReport {
    /// How z is distributed.
    pub histogram: Histogram,
    /// `[quantile of the normal distribution, quantile of z]`, from low to high.
    pub quantiles: Vec<[f64; 2]>,
    /// Errors by the magnitude of what was expected.
    pub magnitudes: Magnitudes,
    /// Where in the result errors lie.
    pub map: MapReport,
    /// The worst elements, the worst first.
    pub worst: Vec<WorstElement>,
}

/// Counts of z in bins of equal width.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Histogram {
    /// The bins reach from minus this to this.
    pub limit: f64,
    /// Elements in each bin.
    pub counts: Vec<u64>,
    /// Elements below all bins.
    pub below: u64,
    /// Elements above all bins.
    pub above: u64,
    /// Elements that are no numbers, or were never written.
    pub broken: u64,
}

/// Counts by magnitude and error, both in bins of half a decade.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Magnitudes {
    /// `[log10 of the magnitude, log10 of the error, elements inside their gate, elements outside]`, logarithms of the
    /// bins' middles.
    pub points: Vec<[f64; 4]>,
    /// `[log10 of the magnitude, log10 of the largest error that the gate allows]`.
    pub allowed: Vec<[f64; 2]>,
}

/// The worst share of the gate by place.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MapReport {
    /// Elements of a row of the result.
    pub elements: usize,
    /// Rows of the result, those of all steps one after another.
    pub rows: usize,
    /// Elements and rows in one cell.
    pub cell: [usize; 2],
    /// For each row of cells one character a cell: `0` to `7` is the [`level`], `.` was not looked at.
    pub levels: Vec<String>,
}

/// One of the worst elements.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WorstElement {
    /// The prompt, counted from 0.
    pub prompt: usize,
    /// The step: 0 computes the prompt.
    pub step: usize,
    /// What each index counts, innermost first.
    pub element: String,
    /// What the device has; null where that is no number.
    pub device: Option<f64>,
    /// What it should be, as declared.
    pub expected: Option<f64>,
    /// Standard deviation that a right device has here.
    pub sigma: Option<f64>,
    /// The error in its standard deviations; null where that is infinite.
    pub z: Option<f64>,
    /// The error by its hard bound.
    pub bound: Option<f64>,
    /// What it was computed from, as the device had it; null where that is not known.
    pub inputs: Option<ElementInputs>,
}

/// Steps of the colours: 0 exact, 1 to 3 below a thousandth, a hundredth, a tenth of the gate, 4 inside it, 5 to 7 up
/// to ten times, up to a thousand times and beyond. `None`, which is infinite, is 7.
pub fn level(share: Option<f64>) -> u8 {
    let Some(share) = share else { return 7 };
    const STEPS: [f64; 7] = [0.0, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 1000.0];
    STEPS.iter().position(|step| share <= *step).unwrap_or(STEPS.len()) as u8
}

impl DetailReport {
    pub(crate) fn new(detail: &Detail) -> DetailReport {
        DetailReport {
            histogram: Histogram {
                limit: Z_LIMIT,
                counts: detail.histogram.clone(),
                below: detail.beyond[0],
                above: detail.beyond[1],
                broken: detail.broken,
            },
            quantiles: quantiles(detail),
            magnitudes: magnitudes(detail),
            map: MapReport::new(&detail.map),
            worst: detail.worst.iter().filter_map(WorstElement::new).collect(),
        }
    }
}

/// Quantiles at even steps of the normal distribution, as far out as there are elements.
fn quantiles(detail: &Detail) -> Vec<[f64; 2]> {
    let count = detail.count() as f64;
    let normal = (-20..=20).map(|step| f64::from(step) / 5.0);
    let known = normal.filter(|normal| normal_below(-normal.abs()) * count >= 0.5 || *normal == 0.0);
    known.filter_map(|normal| Some([normal, detail.quantile(normal_below(normal))?])).collect()
}

fn magnitudes(detail: &Detail) -> Magnitudes {
    let middle = |bin: usize, min: f64| min + (bin as f64 + 0.5) / 2.0;
    let point = |(place, [inside, outside]): (usize, &[u32; 2])| {
        let (magnitude, error) = (middle(place / ERROR_BINS, -6.0), middle(place % ERROR_BINS, -14.0));
        (inside + outside > 0).then_some([magnitude, error, f64::from(*inside), f64::from(*outside)])
    };
    let allowed = (0..MAGNITUDE_BINS).filter(|bin| detail.allowed[*bin] > 0.0);
    Magnitudes {
        points: detail.scatter.iter().enumerate().filter_map(point).collect(),
        allowed: allowed.map(|bin| [middle(bin, -6.0), detail.allowed[bin].log10()]).collect(),
    }
}

impl MapReport {
    fn new(map: &Map) -> MapReport {
        let [width, height] = map.cells();
        let symbol = |x: usize, y: usize| match map.share(x, y) {
            Some(share) => char::from(b'0' + level(Some(f64::from(share)).filter(|share| share.is_finite()))),
            None => '.',
        };
        let row = |y: usize| (0..width).map(|x| symbol(x, y)).collect();
        MapReport {
            elements: map.sizes[0],
            rows: map.sizes[1],
            cell: map.steps,
            levels: (0..height).map(row).collect(),
        }
    }
}

impl WorstElement {
    fn new(element: &Element) -> Option<WorstElement> {
        let place = element.place.clone()?;
        let finite = |value: f64| value.is_finite().then_some(value);
        Some(WorstElement {
            prompt: place.prompt,
            step: place.step,
            element: place.element,
            device: place.device,
            expected: place.expected,
            sigma: finite(element.sigma),
            z: finite(element.z),
            bound: finite(element.bound),
            inputs: element.inputs.as_deref().cloned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_break_at_exactly_one() {
        let shares = [0.0, 1e-9, 1e-3, 5e-3, 0.1, 0.5, 1.0, 1.0 + 1e-12, 10.0, 11.0, 1000.0, 1e9];
        let levels: Vec<u8> = shares.map(|share| level(Some(share))).to_vec();
        assert_eq!(levels, [0, 1, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7]);
        assert_eq!(level(None), 7);
    }
}
