//! One chat template for each family of models, against the texts that transformers renders from the published
//! template (`scripts/make_template_fixtures.py --families`).

use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;
use trueup_tokenizer::ChatTemplate;

#[test]
fn families_give_the_texts_of_their_published_templates() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/family-templates.json");
    let fixture: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let date = fixture["date"].as_str().unwrap().parse().unwrap();
    let families = fixture["families"].as_array().unwrap();
    assert!(families.len() >= 30, "only {} families", families.len());
    let mut faults = Vec::new();
    for family in families {
        let source = family["template"].as_str().unwrap();
        let texts = family["texts"].as_array().unwrap();
        assert!(texts.iter().any(Value::is_string), "{}: no text", family["name"]);
        let cases = fixture["cases"].as_array().unwrap();
        assert_eq!(texts.len(), cases.len(), "{}", family["name"]);
        let template = ChatTemplate::new(source, "", "", Path::new("model")).unwrap().at(date);
        for (case, expected) in cases.iter().zip(texts) {
            let mut variables: Map<String, Value> = case.as_object().unwrap().clone();
            for token in ["bos_token", "eos_token"] {
                variables.insert(token.to_owned(), fixture[token].clone());
            }
            variables.extend(["tools", "documents"].map(|name| (name.to_owned(), Value::Null)));
            let found = template.render_with(&variables).map_or(Value::Null, |text| json!(text));
            if found != *expected {
                faults.push(format!("{}: expected {expected}, found {found}", family["name"]));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
