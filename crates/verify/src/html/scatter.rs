//! Margin of the reference against the device's error of it, one mark for each token.

use super::svg::{Svg, number, power_of_ten};
use crate::tokens::{TokenPoint, TokenReport};

/// The figure, `width` pixels wide.
pub(super) fn tokens(tokens: &TokenReport, width: f64) -> String {
    let mut svg = Svg::new(width, 370.0, "Margin of the reference against the error of the margin, per token");
    let (left, right, top, foot) = (46.0, width - 8.0, 12.0, 328.0);
    let range = |value: &dyn Fn(&TokenPoint) -> f64| {
        let values = tokens.points.iter().map(value).filter(|value| *value > 0.0);
        let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(low, high), v| (low.min(v), high.max(v)));
        if low > high { (-2.0, 1.0) } else { (low.log10() - 0.2, (high.log10() + 0.2).max(low.log10() + 1.0)) }
    };
    let ((x0, x1), (y0, y1)) = (range(&|point| point.margin), range(&|point| point.error));
    let x = |v: f64| left + (right - left) * ((v.max(1e-30).log10() - x0) / (x1 - x0)).clamp(0.0, 1.0);
    let y = |v: f64| foot - (foot - top) * ((v.max(1e-30).log10() - y0) / (y1 - y0)).clamp(0.0, 1.0);
    let limit = tokens.tie_limit;
    if limit > 0.0 && limit.log10() > x0 {
        svg.rect([left, top], [x(limit) - left, foot - top], "f-band");
        let (at, class) = if x(limit) - left > 190.0 { (x(limit) - 8.0, "e") } else { (x(limit) + 8.0, "halo") };
        svg.text([at, foot - 12.0], &format!("inside the tie limit, {}", number(limit)), class);
    }
    let powers = |low: f64, high: f64| {
        let every = (((high - low) / 5.0).ceil() as i32).max(1);
        ((low.ceil() as i32)..=(high.floor() as i32)).filter(move |power| power.rem_euclid(every) == 0)
    };
    for power in powers(y0, y1) {
        let height = y(10f64.powi(power));
        svg.line([left, height], [right, height], "ax");
        svg.text([left - 8.0, height + 4.0], &power_of_ten(power), "e");
    }
    for power in powers(x0, x1) {
        svg.text([x(10f64.powi(power)), foot + 17.0], &power_of_ten(power), "m");
    }
    svg.line([left, foot], [right, foot], "base");
    let (low, high) = (x0.max(y0), x1.min(y1));
    if low < high {
        let at = |power: f64| [x(10f64.powf(power)), y(10f64.powf(power))];
        svg.line(at(low), at(high), "base dash");
    }
    for point in tokens.points.iter().filter(|point| !point.flipped) {
        svg.circle([x(point.margin), y(point.error)], 2.8, "o-blue");
    }
    for point in tokens.points.iter().filter(|point| point.flipped) {
        let at = [x(point.margin), y(point.error)];
        if point.margin > limit { svg.diamond(at, 6.5, "f-bad") } else { svg.circle(at, 3.6, "f-grey") }
    }
    svg.text([(left + right) / 2.0, 366.0], "margin of the reference, logits", "m");
    svg.text_up([10.0, (top + foot) / 2.0], "error of the margin, logits");
    svg.finish()
}
