//! Ids of tokens with a role in the JSON files beside a model: `"eos_token_id": 2`, `[2, 32000]`, or nothing.

use serde_json::{Map, Value};
use std::path::Path;
use trueup_formats::{Error, Result, quote};

/// Ids that a role may have; published models have up to a handful.
const IDS_MAX: usize = 1024;

/// The ids under a key of `file`: a number, a list of numbers, or nothing, for which null and -1 stand too.
///
/// # Errors
/// Anything else: text that ends where it should not is worth more than a key that is passed over. `path` is the model
/// that errors name.
pub fn role_ids(object: &Map<String, Value>, key: &str, file: &str, path: &Path) -> Result<Vec<u32>> {
    let values = match object.get(key) {
        None => &[],
        Some(Value::Array(list)) => list.as_slice(),
        Some(one) => std::slice::from_ref(one),
    };
    let place = || format!("{key} in {file}");
    if values.len() > IDS_MAX {
        let problem = format!("expected at most {IDS_MAX} token IDs, found {}", values.len());
        let help = "list only the tokens that have this role";
        return Err(Error::new(path, problem).at(place()).help(help));
    }
    let values = values.iter().filter(|value| !value.is_null() && value.as_i64() != Some(-1));
    let id = |value: &Value| {
        value.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(|| {
            let found = quote(&value.to_string());
            Error::new(path, format!("expected a token ID, found {found}"))
                .at(place())
                .help("replace it with the ID that the tokenizer gives to the token")
        })
    };
    values.map(id).collect()
}
