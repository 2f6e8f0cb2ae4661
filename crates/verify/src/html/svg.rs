//! A drawing in SVG, written as text. Colours are classes of the page's style sheet.

use std::fmt::Write;

/// A drawing of fixed size; text in it keeps its 12 pixels where it is shown at that size.
pub(crate) struct Svg {
    body: String,
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

impl Svg {
    /// An empty drawing with a description for those who do not see it.
    pub fn new(width: f64, height: f64, label: &str) -> Svg {
        Svg { body: String::new(), width, height, label: escaped(label) }
    }

    fn put(&mut self, content: std::fmt::Arguments) {
        // Writing to a string cannot fail.
        let _ = self.body.write_fmt(content);
    }

    /// A straight line.
    pub fn line(&mut self, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2], class: &str) {
        self.put(format_args!(r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" class="{class}"/>"#));
    }

    /// A line through points.
    pub fn path(&mut self, points: &[[f64; 2]], class: &str) {
        self.shape(points, "", class);
    }

    /// A filled shape.
    pub fn area(&mut self, points: &[[f64; 2]], class: &str) {
        self.shape(points, "Z", class);
    }

    fn shape(&mut self, points: &[[f64; 2]], end: &str, class: &str) {
        if points.is_empty() {
            return;
        }
        let points: Vec<String> = points.iter().map(|[x, y]| format!("{x:.1} {y:.1}")).collect();
        self.put(format_args!(r#"<path d="M{}{end}" class="{class}"/>"#, points.join("L")));
    }

    /// A path in SVG's own words, of which no part comes from outside.
    pub fn raw_path(&mut self, path: &str, class: &str) {
        self.put(format_args!(r#"<path d="{path}" class="{class}"/>"#));
    }

    /// A rectangle.
    pub fn rect(&mut self, [x, y]: [f64; 2], [width, height]: [f64; 2], class: &str) {
        self.put(format_args!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" class="{class}"/>"#
        ));
    }

    /// A round mark.
    pub fn circle(&mut self, [x, y]: [f64; 2], radius: f64, class: &str) {
        self.put(format_args!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="{radius:.1}" class="{class}"/>"#));
    }

    /// A square mark that stands on its corner.
    pub fn diamond(&mut self, [x, y]: [f64; 2], radius: f64, class: &str) {
        self.area(&[[x, y - radius], [x + radius, y], [x, y + radius], [x - radius, y]], class);
    }

    /// Text; classes `e` and `m` end or centre it at the point.
    pub fn text(&mut self, [x, y]: [f64; 2], text: &str, class: &str) {
        let text = escaped(text);
        self.put(format_args!(r#"<text x="{x:.1}" y="{y:.1}" class="{class}">{text}</text>"#));
    }

    /// Text along the left edge, upwards.
    pub fn text_up(&mut self, [x, y]: [f64; 2], text: &str) {
        let text = escaped(text);
        self.put(format_args!(r#"<text transform="translate({x:.1} {y:.1}) rotate(-90)" class="m">{text}</text>"#));
    }

    /// The drawing as an element of a page.
    pub fn finish(self) -> String {
        let Svg { body, width, height, label } = self;
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
    fn text_cannot_leave_its_element() {
        let mut svg = Svg::new(10.0, 10.0, "\"><script>");
        svg.text([0.0, 0.0], "</text><script>", "m");
        assert!(!svg.finish().contains("<script>"));
    }
}
