//! The figures of one node: histogram and quantiles of z, error against magnitude, and where in the result errors lie.

use super::svg::{Svg, grouped, power_of_ten};
use crate::detail_report::{DetailReport, Histogram, MapReport};
use crate::precision::LAMBDA;

const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 210.0;
const FOOT: f64 = HEIGHT - 36.0;

/// Counts of z and the normal distribution that they should follow.
pub(super) fn histogram(detail: &DetailReport) -> String {
    let found = &detail.histogram;
    let mut svg = Svg::new(WIDTH, HEIGHT, "Histogram of z");
    let (top, left, right) = (30.0, 4.0, WIDTH - 4.0);
    let reach = found.limit + 1.6;
    let x = |z: f64| left + (right - left) * (z + reach) / (2.0 * reach);
    let inside: u64 = found.counts.iter().sum();
    let step = 2.0 * found.limit / found.counts.len() as f64;
    let density = |z: f64| inside as f64 * step * (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let highest = found.counts.iter().copied().max().unwrap_or(0).max(found.below).max(found.above);
    let peak = (highest as f64).max(density(0.0) * 1.1).max(1.0);
    // Peaks of z far below 1 hide everything else: the root keeps single elements visible.
    let y = |count: f64| FOOT - (count / peak).sqrt() * (FOOT - top);
    for z in [-LAMBDA, LAMBDA] {
        svg.line([x(z), top], [x(z), FOOT], "base dash");
    }
    for (bin, count) in found.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let (from, height) = (-found.limit + bin as f64 * step, y(*count as f64));
        let outside = from >= LAMBDA || from + step <= -LAMBDA;
        let class = if outside { "f-bad" } else { "f-s3" };
        svg.rect([x(from) + 0.3, height], [x(from + step) - x(from) - 0.6, FOOT - height], class);
    }
    let curve: Vec<[f64; 2]> = (-50..=50).map(|i| f64::from(i) / 10.0).map(|z| [x(z), y(density(z))]).collect();
    svg.path(&curve, "l-ink");
    sides(&mut svg, found, &x, &y);
    for z in [-8, -4, 0, 4, 8] {
        svg.text([x(f64::from(z)), FOOT + 17.0], &z.to_string().replace('-', "−"), "m");
    }
    svg.line([left, FOOT], [right, FOOT], "base");
    svg.text([WIDTH / 2.0, HEIGHT - 3.0], "z, in standard deviations", "m");
    svg.finish()
}

/// Bars for values outside the histogram, and the count of values that are not finite.
fn sides(svg: &mut Svg, found: &Histogram, x: &dyn Fn(f64) -> f64, y: &dyn Fn(f64) -> f64) {
    let width = x(0.8) - x(0.0);
    for (count, z, end, words) in
        [(found.below, -found.limit - 1.2, "", "below −10"), (found.above, found.limit + 0.4, " e", "above 10")]
    {
        if count > 0 {
            let top = y(count as f64);
            svg.rect([x(z), top], [width, FOOT - top], "f-bad");
            let text_x = if end.is_empty() { 4.0 } else { WIDTH - 4.0 };
            let text_y = top.max(30.0);
            svg.text([text_x, text_y - 18.0], &grouped(count), &format!("bad{end}"));
            svg.text([text_x, text_y - 5.0], words, &format!("bad{end}"));
        }
    }
    if found.broken > 0 {
        let words = format!("{} not finite", grouped(found.broken));
        svg.text([WIDTH / 2.0, 12.0], &words, "bad m");
    }
}

/// Quantiles of z against those of the normal distribution.
pub(super) fn quantiles(detail: &DetailReport) -> String {
    let mut svg = Svg::new(WIDTH, HEIGHT, "Quantiles of z against the normal distribution");
    let (top, left, right) = (12.0, 28.0, WIDTH - 4.0);
    let x = |normal: f64| left + (right - left) * (normal + 4.2) / 8.4;
    let y = |z: f64| FOOT - (z + 10.0) / 20.0 * (FOOT - top);
    for (z, class) in [(-LAMBDA, "base dash"), (0.0, "ax"), (LAMBDA, "base dash")] {
        svg.line([left, y(z)], [right, y(z)], class);
        svg.text([left - 6.0, y(z) + 4.0], &format!("{z}").replace('-', "−"), "e");
    }
    for normal in [-3.0, 0.0, 3.0] {
        svg.text([x(normal), FOOT + 17.0], &format!("{normal}").replace('-', "−"), "m");
    }
    svg.line([x(-4.2), y(-4.2)], [x(4.2), y(4.2)], "base");
    for [normal, z] in &detail.quantiles {
        let [px, py] = [x(*normal), y(z.clamp(-10.0, 10.0))];
        if *z > 10.0 {
            svg.area(&[[px, py - 3.0], [px + 3.5, py + 3.0], [px - 3.5, py + 3.0]], "f-bad");
        } else if *z < -10.0 {
            svg.area(&[[px, py + 3.0], [px + 3.5, py - 3.0], [px - 3.5, py - 3.0]], "f-bad");
        } else {
            svg.diamond([px, py], 2.8, if z.abs() > LAMBDA { "f-bad" } else { "f-blue" });
        }
    }
    svg.line([left, FOOT], [right, FOOT], "base");
    svg.text([(left + right) / 2.0, HEIGHT - 3.0], "normal quantile", "m");
    svg.finish()
}

/// How many elements of which magnitude are how far off; what the gate allows.
pub(super) fn magnitudes(detail: &DetailReport) -> String {
    let found = &detail.magnitudes;
    let mut svg = Svg::new(WIDTH, HEIGHT, "Error against magnitude, both axes logarithmic");
    let (top, left, right) = (12.0, 44.0, WIDTH - 8.0);
    let range = |values: &mut dyn Iterator<Item = f64>| {
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        if low > high { (-3.0, 1.0) } else { ((low - 0.3).floor(), (high + 0.3).ceil()) }
    };
    let allowed = &found.allowed;
    let (x0, x1) = range(&mut found.points.iter().map(|p| p[0]).chain(allowed.iter().map(|p| p[0])));
    let (y0, y1) = range(&mut found.points.iter().map(|p| p[1]).chain(allowed.iter().map(|p| p[1])));
    let x = |v: f64| left + (right - left) * (v - x0) / (x1 - x0);
    let y = |v: f64| FOOT - (v - y0) / (y1 - y0) * (FOOT - top);
    let ticks = |low: f64, high: f64| {
        let step = (((high - low) / 4.0).ceil() as i32).max(1);
        ((low as i32)..=(high as i32)).filter(move |power| power.rem_euclid(step) == 0)
    };
    for power in ticks(y0, y1) {
        svg.line([left, y(f64::from(power))], [right, y(f64::from(power))], "ax");
        svg.text([left - 6.0, y(f64::from(power)) + 4.0], &power_of_ten(power), "e");
    }
    for power in ticks(x0, x1) {
        svg.text([x(f64::from(power)), FOOT + 17.0], &power_of_ten(power), "m");
    }
    let most = found.points.iter().map(|p| p[2].max(p[3])).fold(1.0, f64::max);
    let cell = [((right - left) / (x1 - x0) / 2.0).min(30.0), ((FOOT - top) / (y1 - y0) / 2.0).min(30.0)];
    for [magnitude, error, inside, outside] in &found.points {
        for (count, class) in [(inside, "f-blue"), (outside, "f-bad")] {
            if *count > 0.0 {
                let share = 0.25 + 0.75 * (1.0 + count).ln() / (1.0 + most).ln();
                let size = [cell[0] * share, cell[1] * share];
                svg.rect([x(*magnitude) - size[0] / 2.0, y(*error) - size[1] / 2.0], size, class);
            }
        }
    }
    let line: Vec<[f64; 2]> = found.allowed.iter().map(|p| [x(p[0]), y(p[1])]).collect();
    svg.path(&line, "l-ink");
    if let Some([px, py]) = line.first() {
        svg.text([px + 2.0, (py - 6.0).max(10.0)], "allowed", "ink halo");
    }
    svg.line([left, FOOT], [right, FOOT], "base");
    svg.text([(left + right) / 2.0, HEIGHT - 3.0], "|expected|", "m");
    svg.finish()
}

/// Where in the result errors lie, `width` pixels wide.
pub(super) fn error_map(map: &MapReport, width: f64) -> String {
    let columns = map.levels.first().map_or(1, String::len).max(1);
    let rows = map.levels.len().max(1);
    let (left, top) = (44.0, 4.0);
    let cell = [(width - left) / columns as f64, (230.0 / rows as f64).clamp(5.0, 18.0)];
    let height = top + cell[1] * rows as f64;
    let mut svg = Svg::new(width, height + 36.0, "Map of the errors in the result");
    for level in "01234567.".chars() {
        let mut path = String::new();
        for (y, line) in map.levels.iter().enumerate() {
            // A line of width 1 through the middle of each run; within a row, moves are relative.
            let mut at = None;
            runs(line, level, |from, to| {
                let start = at.map_or(format!("M{from} {y}.5"), |at| format!("m{} 0", from - at));
                path.push_str(&format!("{start}h{}", to - from));
                at = Some(to);
            });
        }
        if !path.is_empty() {
            let class = if level == '.' { "t-none".to_owned() } else { format!("t-s{level} crisp") };
            svg.raw_path(&path, [left, top], cell, &class);
        }
    }
    svg.text([left - 6.0, top + 10.0], "0", "e");
    if rows > 1 {
        svg.text([left - 6.0, height], &(map.rows - 1).to_string(), "e");
    }
    for part in 0..=4 {
        let class = ["", "m", "m", "m", "e"][part];
        let x = left + (width - left) * part as f64 / 4.0;
        svg.text([x, height + 16.0], &(map.elements * part / 4).to_string(), class);
    }
    svg.text([left + (width - left) / 2.0, height + 32.0], "element of the row", "m");
    svg.text_up([10.0, top + (height - top) / 2.0], "row");
    svg.finish()
}

/// Calls `found` for each run of `level` in a line, with its first place and the place after its last.
fn runs(line: &str, level: char, mut found: impl FnMut(usize, usize)) {
    let mut start = None;
    for (place, c) in line.chars().chain(std::iter::once(' ')).enumerate() {
        match (c == level, start) {
            (true, None) => start = Some(place),
            (false, Some(from)) => {
                found(from, place);
                start = None;
            }
            (true, Some(_)) | (false, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::runs;

    #[test]
    fn runs_cover_every_place_once() {
        let mut seen = Vec::new();
        runs("0110.1", '1', |from, to| seen.push((from, to)));
        assert_eq!(seen, [(1, 3), (5, 6)]);
    }
}
