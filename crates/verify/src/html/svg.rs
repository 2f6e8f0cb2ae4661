//! A drawing in SVG, written as text. Colours are classes of the page's style sheet.

use std::fmt::{self, Write};

/// A drawing of fixed size; text in it keeps its 12 pixels where it is shown at that size.
pub(crate) struct Svg {
    body: String,
    /// Lines and shapes of one class that follow each other, as one path that is not yet in the body.
    path: String,
    class: String,
    width: f64,
    height: f64,
    label: String,
}

/// Text in which HTML means nothing.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

/// A coordinate in tenths of a pixel.
fn tenths(value: f64) -> i64 {
    (value * 10.0).round() as i64
}

/// Tenths of a pixel as a decimal number without superfluous digits.
struct Short(i64);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        match (self.0.abs() / 10, self.0.abs() % 10) {
            (whole, 0) => write!(f, "{sign}{whole}"),
            (0, tenth) => write!(f, "{sign}.{tenth}"),
            (whole, tenth) => write!(f, "{sign}{whole}.{tenth}"),
        }
    }
}

fn short(value: f64) -> Short {
    Short(tenths(value))
}

impl Svg {
    /// An empty drawing with a description for screen readers.
    pub fn new(width: f64, height: f64, label: &str) -> Svg {
        Svg { body: String::new(), path: String::new(), class: String::new(), width, height, label: escaped(label) }
    }

    fn put(&mut self, content: fmt::Arguments) {
        self.close_path();
        // Writing to a string cannot fail.
        let _ = self.body.write_fmt(content);
    }

    /// Appends to the open path if the class is the same, else starts a new path.
    fn append(&mut self, content: fmt::Arguments, class: &str) {
        if self.class != class {
            self.close_path();
            class.clone_into(&mut self.class);
        }
        // Writing to a string cannot fail.
        let _ = self.path.write_fmt(content);
    }

    fn close_path(&mut self) {
        if !self.path.is_empty() {
            let (path, class) = (std::mem::take(&mut self.path), std::mem::take(&mut self.class));
            let _ = write!(self.body, r#"<path d="{path}" class="{class}"/>"#);
        }
    }

    /// A straight line.
    pub fn line(&mut self, from: [f64; 2], to: [f64; 2], class: &str) {
        self.shape(&[from, to], "", class);
    }

    /// A line through points.
    pub fn path(&mut self, points: &[[f64; 2]], class: &str) {
        self.shape(points, "", class);
    }

    /// A filled shape.
    pub fn area(&mut self, points: &[[f64; 2]], class: &str) {
        self.shape(points, "z", class);
    }

    /// Points as an absolute place followed by steps.
    fn shape(&mut self, points: &[[f64; 2]], end: &str, class: &str) {
        let mut at: Option<[i64; 2]> = None;
        for point in points {
            let next = point.map(tenths);
            match at {
                None => self.append(format_args!("M{} {}", Short(next[0]), Short(next[1])), class),
                Some(at) => {
                    let [x, y] = [next[0] - at[0], next[1] - at[1]];
                    let space = if y < 0 { "" } else { " " };
                    self.append(format_args!("l{}{space}{}", Short(x), Short(y)), class);
                }
            }
            at = Some(next);
        }
        if at.is_some() {
            self.append(format_args!("{end}"), class);
        }
    }

    /// A path in SVG path syntax, in units of `unit` from `origin`. No part of it may come from a file.
    pub fn raw_path(&mut self, path: &str, origin: [f64; 2], unit: [f64; 2], class: &str) {
        let ([x, y], [width, height]) = (origin, unit);
        self.put(format_args!(
            r#"<path transform="translate({} {})scale({width:.3} {height:.3})" d="{path}" class="{class}"/>"#,
            short(x),
            short(y)
        ));
    }

    /// A rectangle.
    pub fn rect(&mut self, [x, y]: [f64; 2], [width, height]: [f64; 2], class: &str) {
        let (x, y, width, height) = (short(x), short(y), short(width), short(height));
        self.append(format_args!("M{x} {y}h{width}v{height}H{x}z"), class);
    }

    /// A round mark.
    pub fn circle(&mut self, [x, y]: [f64; 2], radius: f64, class: &str) {
        let (x, y, radius) = (short(x), short(y), short(radius));
        self.put(format_args!(r#"<circle cx="{x}" cy="{y}" r="{radius}" class="{class}"/>"#));
    }

    /// A square mark that stands on its corner.
    pub fn diamond(&mut self, [x, y]: [f64; 2], radius: f64, class: &str) {
        self.area(&[[x, y - radius], [x + radius, y], [x, y + radius], [x - radius, y]], class);
    }

    /// Text; classes `e` and `m` end or centre it at the point.
    pub fn text(&mut self, [x, y]: [f64; 2], text: &str, class: &str) {
        let (x, y, text) = (short(x), short(y), escaped(text));
        self.put(format_args!(r#"<text x="{x}" y="{y}" class="{class}">{text}</text>"#));
    }

    /// Text along the left edge, upwards.
    pub fn text_up(&mut self, [x, y]: [f64; 2], text: &str) {
        let text = escaped(text);
        self.put(format_args!(r#"<text transform="translate({x:.1} {y:.1}) rotate(-90)" class="m">{text}</text>"#));
    }

    /// The drawing as an element of a page.
    pub fn finish(mut self) -> String {
        self.close_path();
        let Svg { body, width, height, label, .. } = self;
        format!(r#"<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{body}</svg>"#)
    }
}

/// A number for people: three digits, powers of ten where it is large or small.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        return "0".to_owned();
    }
    if !value.is_finite() {
        return "∞".to_owned();
    }
    if (1e-3..1e4).contains(&size) {
        let digits = if size >= 100.0 {
            0
        } else if size >= 10.0 {
            1
        } else if size >= 1.0 {
            2
        } else {
            3
        };
        return format!("{value:.digits$}").replace('-', "−");
    }
    let scientific = format!("{value:.1e}").replace('-', "−");
    let (digits, power) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    format!("{digits} × 10{}", raised(power))
}

/// A power of ten, `10⁻³`.
pub(crate) fn power_of_ten(power: i32) -> String {
    match power {
        0 => "1".to_owned(),
        1 => "10".to_owned(),
        power => format!("10{}", raised(&power.to_string())),
    }
}

fn raised(power: &str) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let digit = |c: char| c.to_digit(10).map_or('⁻', |digit| DIGITS[digit as usize]);
    power.chars().map(digit).collect()
}

/// A whole number in groups of three digits.
pub(crate) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push('\u{202f}');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let cases = [
            (0.0, "0"),
            (-0.5, "−0.500"),
            (12.34, "12.3"),
            (123.4, "123"),
            (1.2e7, "1.2 × 10⁷"),
            (-3e-5, "−3.0 × 10⁻⁵"),
        ];
        for (value, shown) in cases {
            assert_eq!(number(value), shown);
        }
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
    }

    #[test]
    fn shapes_of_one_class_share_a_path() {
        let mut svg = Svg::new(10.0, 10.0, "");
        svg.rect([1.0, 2.26], [3.0, 0.5], "a");
        svg.rect([5.0, 2.0], [3.0, 0.5], "a");
        svg.path(&[[0.0, 0.0], [0.06, -1.04], [0.0, 0.0]], "b");
        let body = svg.finish();
        assert!(body.contains(r#"<path d="M1 2.3h3v.5H1zM5 2h3v.5H5z" class="a"/>"#), "{body}");
        assert!(body.contains(r#"<path d="M0 0l.1-1l-.1 1" class="b"/>"#), "{body}");
    }

    #[test]
    fn text_cannot_leave_its_element() {
        let mut svg = Svg::new(10.0, 10.0, "\"><script>");
        svg.text([0.0, 0.0], "</text><script>", "m");
        assert!(!svg.finish().contains("<script>"));
    }
}
