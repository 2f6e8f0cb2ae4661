//! A comparison as one HTML page: figures, distributions, layers, positions.
//!
//! The page needs no script and no network. The template engine escapes text from models and files.

use crate::compare::Comparison;
use crate::drift::LayerDrift;
use crate::totals::ChunkFigures;
use minijinja::value::Serde;
use minijinja::{Environment, context};
use serde::Serialize;

const PAGE: &str = include_str!("html/page.html.jinja");
const STYLE: &str = include_str!("html/style.css");

/// Size of a figure in SVG user units.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 200.0;

/// Facts that the page shows in addition to the results.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PageFacts {
    /// The model.
    pub model: String,
    /// The reference, if there is one.
    pub reference: Option<String>,
    /// The text, or the file with its tokens.
    pub corpus: String,
    /// Device that computed the model.
    pub device: String,
    /// Version of the program.
    pub version: String,
}

/// A bar on a logarithmic scale.
#[derive(Serialize)]
struct Bar {
    label: String,
    value: String,
    /// Length in percent of the longest bar.
    length: f64,
    is_marked: bool,
}

/// A line with a band around it.
#[derive(Serialize)]
struct Curve {
    line: String,
    band: String,
    top: String,
    bottom: String,
    last: usize,
}

impl Comparison {
    /// Creates the page.
    ///
    /// # Errors
    /// A failure of the template engine, as one sentence.
    pub fn to_html(&self, facts: &PageFacts) -> Result<String, String> {
        let fail = |error: minijinja::Error| format!("the HTML page cannot be created: {error:#}");
        let mut environment = Environment::new();
        environment.add_template("page.html", PAGE).map_err(fail)?;
        let kl = self.figures.against.as_ref().map(|against| {
            let median = |percent: f64| if percent == 50.0 { "median".to_owned() } else { format!("{percent}%") };
            let mut values = vec![("maximum".to_owned(), against.kl.maximum)];
            values.extend(against.kl.percentiles.iter().map(|known| (median(known.percent), known.value)));
            bars(&values, &|_| false)
        });
        let layers = self.layers.as_deref().map(|layers| {
            let value = |layer: &LayerDrift| (format!("layer {}", layer.layer), layer.nmse);
            let values: Vec<(String, f64)> = layers.iter().map(value).collect();
            bars(&values, &|index| layers.get(index).map(|layer| layer.layer) == self.first_drift)
        });
        let of_kl = |chunk: &ChunkFigures| chunk.kl.map(|kl| [kl.value, kl.error]);
        let of_perplexity = |chunk: &ChunkFigures| Some([chunk.perplexity.value, chunk.perplexity.error]);
        let page = context! {
            style => STYLE,
            facts => Serde(facts),
            comparison => Serde(self),
            kl => Serde(kl),
            layers => Serde(layers),
            kl_by_chunk => Serde(curve(&self.progress, of_kl)),
            perplexity_by_chunk => Serde(curve(&self.progress, of_perplexity)),
        };
        environment.get_template("page.html").and_then(|template| template.render(page)).map_err(fail)
    }
}

/// Bars on a logarithmic scale from a tenth of the smallest positive value to the largest. Bars of 0 have no length.
fn bars(values: &[(String, f64)], is_marked: &dyn Fn(usize) -> bool) -> Vec<Bar> {
    let positive = || values.iter().map(|(_, value)| *value).filter(|value| *value > 0.0);
    let greatest = positive().fold(f64::MIN_POSITIVE, f64::max);
    let least = positive().fold(greatest, f64::min) / 10.0;
    let length = |value: f64| {
        let share = libm::log(value / least) / libm::log(greatest / least);
        if value > 0.0 { 100.0 * share.clamp(0.0, 1.0) } else { 0.0 }
    };
    let bar = |(index, (label, value)): (usize, &(String, f64))| Bar {
        label: label.clone(),
        value: number(*value),
        length: length(*value),
        is_marked: is_marked(index),
    };
    values.iter().enumerate().map(bar).collect()
}

/// A value after each chunk, with its standard error; `None` with fewer than two chunks or without values.
fn curve(progress: &[ChunkFigures], value: impl Fn(&ChunkFigures) -> Option<[f64; 2]>) -> Option<Curve> {
    let values: Vec<[f64; 2]> = progress.iter().map(value).collect::<Option<_>>()?;
    if values.len() < 2 {
        return None;
    }
    let low = values.iter().fold(f64::INFINITY, |low, [value, error]| low.min(value - error)).max(0.0);
    let high = values.iter().fold(low, |high, [value, error]| high.max(value + error));
    let range = if high > low { high - low } else { 1.0 };
    let point = |index: usize, value: f64| {
        let x = WIDTH * index as f64 / (values.len() - 1) as f64;
        let y = HEIGHT * (1.0 - (value.clamp(low, low + range) - low) / range);
        format!("{x:.1},{y:.1}")
    };
    let line: Vec<String> = values.iter().enumerate().map(|(index, [value, _])| point(index, *value)).collect();
    let above = values.iter().enumerate().map(|(index, [value, error])| point(index, value + error));
    let below = values.iter().enumerate().rev().map(|(index, [value, error])| point(index, value - error));
    let band: Vec<String> = above.chain(below).collect();
    let (line, band) = (line.join(" "), band.join(" "));
    Some(Curve { line, band, top: number(high), bottom: number(low), last: values.len() })
}

/// A number with three significant digits.
fn number(value: f64) -> String {
    let magnitude = value.abs();
    if value == 0.0 {
        "0".to_owned()
    } else if !(1e-4..1e6).contains(&magnitude) {
        format!("{value:.2e}")
    } else {
        let digits = (2.0 - libm::floor(libm::log10(magnitude))).clamp(0.0, 8.0) as usize;
        format!("{value:.digits$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Estimate;

    #[test]
    fn numbers_have_three_digits() {
        let shown = [0.0, 1.0, 123.456, 0.012345, 1234567.0, 0.0000123, -0.5].map(number);
        assert_eq!(shown, ["0", "1.00", "123", "0.0123", "1.23e6", "1.23e-5", "-0.500"]);
    }

    #[test]
    fn bars_are_logarithms() {
        let values = [("a".to_owned(), 1.0), ("b".to_owned(), 0.1), ("c".to_owned(), 0.0)];
        let lengths: Vec<f64> = bars(&values, &|_| false).iter().map(|bar| bar.length).collect();
        assert!((lengths[0] - 100.0).abs() < 1e-9 && (lengths[1] - 50.0).abs() < 1e-9 && lengths[2] == 0.0);
    }

    #[test]
    fn curves_fit_into_their_figure() {
        let chunk =
            |chunks: usize, value: f64| ChunkFigures { chunks, perplexity: Estimate::new(value, 1.0), kl: None };
        let progress = [chunk(1, 5.0), chunk(2, 7.0), chunk(3, 6.0)];
        let of_perplexity = |chunk: &ChunkFigures| Some([chunk.perplexity.value, chunk.perplexity.error]);
        let curve = curve(&progress, of_perplexity).unwrap();
        assert_eq!(curve.line, "0.0,150.0 500.0,50.0 1000.0,100.0");
        assert_eq!((curve.top.as_str(), curve.bottom.as_str(), curve.last), ("8.00", "4.00", 3));
        assert!(super::curve(&progress[..1], of_perplexity).is_none());
        assert!(super::curve(&progress, |chunk| chunk.kl.map(|kl| [kl.value, kl.error])).is_none());
    }
}
