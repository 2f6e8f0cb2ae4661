//! The report as one HTML page: verdict, map, layers, nodes, tokens, operators, unchecked nodes, changes.
//!
//! ```text
//!   Report ──▶ context (formatted numbers, figures as SVG) ──minijinja──▶ page: style, markup, optional script and its data
//! ```
//!
//! The page is readable without the script and without a network. Its sections answer the questions in order: what
//! happened, where, is the error local or inherited, what kind of error is it, what does it do to the tokens, what was
//! not checked. The template engine escapes text from model files, and the JSON contains nothing that could end its
//! element.

mod drawer;
mod figures;
mod layers;
mod readout;
mod scatter;
mod strip;
mod svg;
mod table;
mod traced;

use crate::next::{command_of, file_word, repro_arguments};
use crate::quantities::{bytes_in_words, duration};
use crate::record::shown_exactly;
use crate::report::Report;
use crate::summary::word;
use drawer::Drawer;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, context};
use readout::Readout;
use strip::Strip;
use svg::number;
use traced::Traced;
use trueup_formats::counted;

const PAGE: &str = include_str!("html/page.html.jinja");
const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/page.js");

/// Widths of figures: over the whole page, next to each other, on a phone.
const WIDE: f64 = 1064.0;
const HALF: f64 = 620.0;
const NARROW: f64 = 340.0;

impl Report {
    /// The report as one HTML page that needs nothing else.
    pub fn to_html(&self) -> Result<String, String> {
        let fail = |error: minijinja::Error| format!("the HTML page cannot be created: {error:#}");
        let data = serde_json::to_string(&Readout::new(self))
            .map_err(|error| format!("the HTML page cannot be created: {error}"))?;
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(fail)?;
        environment.set_syntax(syntax);
        environment.add_filter("n", |value: Option<f64>| value.map_or("–".to_owned(), number));
        // Elements differ behind the third digit.
        let digits = |value: f64| shown_exactly(value).replace('-', "−");
        environment.add_filter("digits", move |value: Option<f64>| value.map_or("–".to_owned(), digits));
        let exact =
            |value: f64| if value == value.trunc() && value.abs() < 1e6 { format!("{value}") } else { number(value) };
        environment.add_filter("input", exact);
        let arguments = repro_arguments(self);
        environment.add_filter("alone", move |file: &str| format!("trueup repro {}{arguments}", file_word(file)));
        environment.add_filter("counted", |count: u64, noun: &str| counted(count, noun));
        environment.add_template("page.html", PAGE).map_err(fail)?;
        let page = environment.get_template("page.html").map_err(fail)?;
        page.render(self.context(&data)).map_err(fail)
    }

    fn context(&self, data: &str) -> Value {
        let drawers = Drawer::all(self);
        let nodes: Vec<usize> = drawers.iter().map(Drawer::node).collect();
        let layers = layers::layers(self);
        let safe = Value::from_safe_string;
        context! {
            report => data_of(self),
            word => word(self.result),
            next => command_of(&self.sentence),
            exit_code => match self.result { crate::Outcome::Pass => 0, crate::Outcome::Fail => 1, crate::Outcome::Inconclusive => 3 },
            style => safe(STYLE.to_owned()),
            script => safe(SCRIPT.to_owned()),
            data => safe(json_in_page(data)),
            counts => data_of(&table::counts(self)),
            strips => data_of(&[Strip::new(self, &nodes, false), Strip::new(self, &nodes, true)]),
            height_of_one => strip::height_of_one(),
            layers => layers.len(),
            errors => [safe(layers::errors(&layers, WIDE)), safe(layers::errors(&layers, NARROW))],
            growth => [safe(layers::amplification(&layers, WIDE)), safe(layers::amplification(&layers, NARROW))],
            drawers => data_of(&drawers),
            scatter => [safe(scatter::tokens(&self.tokens, HALF)), safe(scatter::tokens(&self.tokens, NARROW))],
            operators => data_of(&table::operators(self)),
            traced => Traced::new(self).map(|traced| data_of(&traced)),
            exceptions => data_of(&table::exceptions(self)),
            peak_memory => self.run.as_ref().map(|run| run.peak_memory_bytes.map_or("peak memory unknown".to_owned(), bytes_in_words)),
            took => self.run.as_ref().map(|run| duration(run.seconds)),
            model_name => self.model.rsplit(['/', '\\']).next().unwrap_or(&self.model),
        }
    }
}

/// Plain data for the template.
fn data_of(value: &impl serde::Serialize) -> Value {
    Value::from(Serde(value))
}

/// JSON that stands in a script element: nothing in it ends the element or begins a comment.
fn json_in_page(json: &str) -> String {
    let mut safe = String::with_capacity(json.len() + json.len() / 16);
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => safe.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::json_in_page;

    #[test]
    fn json_in_a_page_stays_the_same_json() {
        let text = serde_json::to_string("</script><!-- & \u{2028}").unwrap();
        let safe = json_in_page(&text);
        assert!(!safe.contains('<') && !safe.contains('\u{2028}'));
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), "</script><!-- & \u{2028}");
    }
}
