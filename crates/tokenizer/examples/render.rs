//! Renders chat templates: every line of standard input is a JSON object with `template`, `variables` and `date`, and
//! becomes a line `{"text": ...}` or `{"error": ...}`. `scripts/make_template_fixtures.py --compare` calls it.

use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use trueup_tokenizer::ChatTemplate;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for line in std::io::stdin().lines() {
        let case: Value = serde_json::from_str(&line?)?;
        let (Some(source), Some(variables)) = (case["template"].as_str(), case["variables"].as_object()) else {
            return Err("expected a template and variables".into());
        };
        let date = case["date"].as_str().unwrap_or("2024-07-26").parse()?;
        let template = ChatTemplate::new(source, "", "", Path::new("template")).map(|template| template.at(date));
        let result = match template.and_then(|template| template.render_with(variables)) {
            Ok(text) => json!({"text": text}),
            Err(error) => json!({"error": error.to_string()}),
        };
        writeln!(std::io::stdout(), "{result}")?;
    }
    Ok(())
}
