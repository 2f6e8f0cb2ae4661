//! Chat templates against texts of the transformers library (scripts/make_template_fixtures.py).

use serde_json::{Map, Value};
use std::fs;
use std::path::Path;
use trueup_tokenizer::ChatTemplate;

fn fixture() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/templates.json");
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The common variables, replaced by those of a case. A token that is null does not exist.
fn variables(common: &Value, own: &Value) -> Map<String, Value> {
    let mut variables = common.as_object().unwrap().clone();
    for (name, value) in own.as_object().into_iter().flatten() {
        variables.insert(name.clone(), value.clone());
    }
    variables.retain(|name, value| name != "bos_token" || !value.is_null());
    variables
}

#[test]
fn templates_give_the_texts_of_transformers() {
    let fixture = fixture();
    let date = fixture["date"].as_str().unwrap().parse().unwrap();
    let cases = fixture["cases"].as_array().unwrap();
    assert!(cases.len() >= 120, "only {} templates", cases.len());
    let mut faults = Vec::new();
    for case in cases {
        let (name, source) = (case["name"].as_str().unwrap(), case["template"].as_str().unwrap());
        let variables = variables(&fixture["common"], &case["variables"]);
        let template = ChatTemplate::new(source, "", "", Path::new("model")).map(|template| template.at(date));
        let found = template.and_then(|template| template.render_with(&variables));
        match (case["text"].as_str(), found) {
            (Some(expected), Ok(text)) if text == expected => {}
            (None, Err(_)) => {}
            (Some(expected), Ok(text)) => faults.push(format!("{name}: expected {expected:?}, found {text:?}")),
            (Some(_), Err(error)) => faults.push(format!("{name}: {error}")),
            (None, Ok(text)) => faults.push(format!("{name}: expected an error, found {text:?}")),
        }
    }
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn errors_name_the_line_and_the_cause() {
    let cases = [
        ("a\n\n{{ nothing + 1 }}", "model: chat template: line 3: \"nothing\" is undefined"),
        ("{% for x in y %}", "line 1: a block is not closed: expected endfor or else"),
        ("{{ 1 +\n }}", "line 2: expected a value, found the end of the tag"),
        (
            "x\n{{ raise_exception('roles must alternate') }}",
            "line 2: the template rejects the conversation: roles must",
        ),
        ("{{ messages|frobnicate }}", "the filter frobnicate is not supported"),
        ("{{ strftime_now('%d') }}", "the template asks for the current date, and none is given"),
        ("{{ 'a\u{1b}'.x.y }}", "has no attribute or item x"),
    ];
    for (source, expected) in cases {
        let template = ChatTemplate::new(source, "", "", Path::new("model"));
        let error = template.and_then(|template| template.render(&[], true)).expect_err(source).to_string();
        assert!(error.contains(expected), "{source}: {error}");
    }
}
