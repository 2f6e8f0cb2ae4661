//! JSON of files: every kind of value comes through, and messages say where and what.

use crate::support::Faults;
use serde_json::{Value, json};
use trueup_formats::json;

#[test]
fn every_kind_of_value_comes_through() {
    let text = r#"{"none": null, "true": true, "less": -9000000000, "large": 18446744073709551615, "part": -0.125,
        "plain": "text", "escaped": "a\n\u00e9\ud83d\ude00", "list": [1, [], {"in": [null, "b\t"]}], "empty": {}}"#;
    let expected: Value = json!({
        "none": null, "true": true, "less": -9_000_000_000_i64, "large": u64::MAX, "part": -0.125, "plain": "text",
        "escaped": "a\né😀", "list": [1, [], {"in": [null, "b\t"]}], "empty": {}
    });
    assert_eq!(json::value("a.json", text.as_bytes()).unwrap(), expected);
    assert_eq!(Value::Object(json::object("a.json", text.as_bytes()).unwrap()), expected);
}

#[test]
fn keys_keep_their_order() {
    let object = json::object("a.json", br#"{"z": 1, "a": 2, "m": 3}"#).unwrap();
    assert_eq!(object.keys().collect::<Vec<_>>(), ["z", "a", "m"]);
}

#[test]
fn what_is_no_object_is_named() {
    let mut faults = Faults::default();
    for (text, kind) in
        [("null", "null"), ("false", "a boolean"), ("1", "a number"), ("\"x\"", "a string"), ("[{}]", "an array")]
    {
        let refused = json::object("a.json", text.as_bytes()).map_err(|error| error.at("whole"));
        faults.refused(text, refused, "a.json", &["expected a JSON object", &format!("found {kind}")]);
    }
    for (text, fragments) in [
        (r#"{"a": {"b": 1, "b": 2}}"#, ["line 1, column", ": the key \"b\" occurs twice"]),
        ("{\n\"a\": }", ["line 2, column 6", ": invalid JSON: expected a value; correct"]),
        ("{\"a\": 1", ["line 1, column 7", "expected valid JSON, found the end of the file; the file is damaged or"]),
        ("\u{1}", ["line 1, column 1", ": invalid JSON: expected a value; correct"]),
        ("{} {}", ["line 1", "trailing characters"]),
    ] {
        faults.refused(text, json::value("a.json", text.as_bytes()), "a.json", &fragments);
    }
    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Known {
        #[allow(dead_code)]
        first: u32,
        #[allow(dead_code)]
        second: u32,
    }
    let typed = |text: &str| json::typed::<Known>("a.json", text.as_bytes()).unwrap_err().to_string();
    assert_eq!(typed("{\"strikt\": 1}"), "a.json: line 1, column 9: unknown field `strikt`");
    assert_eq!(typed("{\"first\": 1}"), "a.json: line 1, column 12: missing field `second`");
    let empty = json::value("a.json", b" \n").unwrap_err().to_string();
    assert_eq!(empty, "a.json: expected JSON, found an empty file; get the file again");
    let deep = "[".repeat(200) + &"]".repeat(200);
    faults.refused("deep", json::value("a.json", deep.as_bytes()), "a.json", &["recursion limit"]);
    faults.report();
}
