//! The error of each layer's output, what its operators made themselves, what rounding should have added up to, and the
//! growth per layer.

use super::svg::{Svg, number, power_of_ten};
use crate::report::{NodeReport, Report};

/// One layer in numbers, relative to the reference's result.
pub(super) struct Layer {
    number: usize,
    /// The largest local error of an operator in the layer, and whose it is.
    local: Option<f64>,
    total: Option<f64>,
    expected: Option<f64>,
    fails: bool,
}

/// The models of noise hold within 30 percent.
const BAND: f64 = 1.3;

/// The layers of the model, in order.
pub(super) fn layers(report: &Report) -> Vec<Layer> {
    let count = report.nodes.iter().filter_map(|node| node.layer).max().map_or(0, |last| last + 1);
    let layer = |number: usize| {
        let own: Vec<&NodeReport> = report.nodes.iter().filter(|node| node.layer == Some(number)).collect();
        let last = own.last()?;
        Some(Layer {
            number,
            local: own.iter().filter_map(|node| node.local).reduce(f64::max),
            total: last.total,
            expected: last.total_expected,
            fails: own.iter().any(|node| node.fails()),
        })
    };
    (0..count).filter_map(layer).collect()
}

/// The scale of a drawing of layers.
struct Scale {
    left: f64,
    right: f64,
    top: f64,
    foot: f64,
    last: f64,
    low: f64,
    high: f64,
}

impl Scale {
    fn x(&self, layer: usize) -> f64 {
        let inner = self.right - self.left - 16.0;
        self.left + 8.0 + if self.last > 0.0 { inner * layer as f64 / self.last } else { inner / 2.0 }
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value.max(1e-30).log10() - self.low) / (self.high - self.low);
        self.foot - share.clamp(-0.02, 1.02) * (self.foot - self.top)
    }
}

/// Local and total error with the band of the expected noise, `width` pixels wide.
pub(super) fn errors(layers: &[Layer], width: f64) -> String {
    let narrow = width < 600.0;
    let values = || {
        let all = layers.iter().flat_map(|layer| [layer.local, layer.total, layer.expected]);
        all.flatten().filter(|value| *value > 0.0)
    };
    let low = values().fold(f64::INFINITY, f64::min).clamp(1e-17, 1e-1).log10().floor();
    let high = values().fold(0.0, f64::max).max(1e-16).log10().ceil().max(low + 1.0);
    let right = if narrow { width - 8.0 } else { width - 190.0 };
    let last = layers.last().map_or(0.0, |layer| layer.number as f64);
    let scale = Scale { left: 48.0, right, top: 20.0, foot: 290.0, last, low, high };
    let mut svg =
        Svg::new(width, if narrow { 384.0 } else { 330.0 }, "Relative error of each layer and the expected noise");
    axes(&mut svg, &scale, layers);
    let expected = |factor: f64| -> Vec<[f64; 2]> {
        let known = layers.iter().filter_map(|layer| Some((layer.number, layer.expected.filter(|e| *e > 0.0)?)));
        known.map(|(number, value)| [scale.x(number), scale.y(value * factor)]).collect()
    };
    let mut band = expected(BAND);
    band.extend(expected(1.0 / BAND).into_iter().rev());
    svg.area(&band, "f-band");
    svg.path(&expected(1.0), "base dash");
    let line = |value: &dyn Fn(&Layer) -> Option<f64>| -> Vec<[f64; 2]> {
        let known = layers.iter().filter_map(|layer| Some((layer.number, value(layer).filter(|v| *v > 0.0)?)));
        known.map(|(number, value)| [scale.x(number), scale.y(value)]).collect()
    };
    let (locals, totals) = (line(&|layer| layer.local), line(&|layer| layer.total));
    svg.path(&totals, "lb");
    let mark = if layers.len() > 40 { 2.0 } else { 3.5 };
    for [x, y] in &totals {
        svg.rect([x - mark, y - mark], [2.0 * mark, 2.0 * mark], "f-blue");
    }
    svg.path(&locals, "l-ink");
    for layer in layers {
        let Some(local) = layer.local.filter(|local| *local > 0.0) else { continue };
        let at = [scale.x(layer.number), scale.y(local)];
        svg.circle(at, if layer.fails { mark + 1.5 } else { mark }, if layer.fails { "o-bad" } else { "o-ink" });
    }
    legend(&mut svg, &scale, narrow, [&totals, &locals, &expected(1.0)]);
    svg.finish()
}

fn axes(svg: &mut Svg, scale: &Scale, layers: &[Layer]) {
    let step = (((scale.high - scale.low) / 6.0).ceil() as i32).max(1);
    for power in (scale.low as i32..=scale.high as i32).filter(|power| power.rem_euclid(step) == 0) {
        let y = scale.y(10f64.powi(power));
        svg.line([scale.left, y], [scale.right, y], "ax");
        svg.text([scale.left - 8.0, y + 4.0], &power_of_ten(power), "e");
    }
    let room = ((scale.right - scale.left) / 26.0).max(1.0);
    let every = (layers.len() as f64 / room).ceil().max(1.0) as usize;
    for layer in layers.iter().filter(|layer| layer.number % every == 0) {
        svg.text([scale.x(layer.number), scale.foot + 18.0], &layer.number.to_string(), "m");
    }
    svg.text([(scale.left + scale.right) / 2.0, scale.foot + 36.0], "layer", "m");
    svg.line([scale.left, scale.foot], [scale.right, scale.foot], "base");
}

fn legend(svg: &mut Svg, scale: &Scale, narrow: bool, lines: [&[[f64; 2]]; 3]) {
    let words = [("■ total error of the layer", "blue"), ("○ largest local error", "ink"), ("⋯ expected noise", "")];
    if narrow {
        for (index, (word, class)) in words.iter().enumerate() {
            svg.text([scale.left, scale.foot + 56.0 + 18.0 * index as f64], word, class);
        }
        return;
    }
    // Ends of lines that come close push their words apart, in their order from the top.
    let mut ends: Vec<(f64, usize)> =
        lines.iter().enumerate().filter_map(|(index, line)| Some((line.last()?[1], index))).collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut next = f64::NEG_INFINITY;
    for (y, index) in ends {
        let y = (y + 4.0).max(next);
        next = y + 17.0;
        svg.text([scale.right + 14.0, y], words[index].0, words[index].1);
    }
}

/// How much each layer enlarges the error it is given: its output's error by the one before's.
pub(super) fn amplification(layers: &[Layer], width: f64) -> String {
    let growth: Vec<(usize, f64)> = layers
        .windows(2)
        .filter_map(|pair| Some((pair[1].number, pair[1].total? / pair[0].total.filter(|total| *total > 0.0)?)))
        .filter(|(_, growth)| growth.is_finite() && *growth > 0.0)
        .collect();
    let reach = growth.iter().map(|(_, growth)| growth.log10().abs()).fold(0.2, f64::max) * 1.15;
    let right = if width < 600.0 { width - 8.0 } else { width - 190.0 };
    let last = layers.last().map_or(0.0, |layer| layer.number as f64);
    let scale = Scale { left: 48.0, right, top: 8.0, foot: 92.0, last, low: -reach, high: reach };
    let mut svg = Svg::new(width, 100.0, "Error amplification per layer");
    svg.line([scale.left, scale.y(1.0)], [scale.right, scale.y(1.0)], "base dash");
    svg.text([scale.left - 8.0, scale.y(1.0) + 4.0], "× 1", "e");
    for (layer, growth) in &growth {
        let (x, y) = (scale.x(*layer), scale.y(*growth));
        let (top, height) = (y.min(scale.y(1.0)), (y - scale.y(1.0)).abs().max(1.0));
        svg.rect([x - 3.0, top], [6.0, height], if *growth > 10.0 { "f-bad" } else { "f-s4" });
    }
    if let Some((layer, most)) = growth.iter().copied().reduce(|a, b| if b.1 > a.1 { b } else { a }) {
        let class = if scale.x(layer) > (scale.left + scale.right) / 2.0 { "e ink" } else { "ink" };
        let x = scale.x(layer) + if class == "ink" { 8.0 } else { -8.0 };
        svg.text([x, scale.y(most).max(14.0) + 4.0], &format!("× {} in layer {layer}", number(most)), class);
    }
    svg.finish()
}
