//! Attestations of quantized files.

use super::super::{Answer, later, law, refused};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use trueup::attestation::Attestation;

/// A statement of each kind: plain, and with an importance matrix, rules and separate scales.
pub fn seeds() -> Vec<Vec<u8>> {
    let recipe = json!({
        "type": "q4_k_m", "pure": false, "strict": true, "token_embedding_type": "q8_0", "output_tensor_type": null,
        "leave_output_tensor": false, "rules": ["ffn_(up|down)=q5_k", "^blk\\.[0-3]\\.=f16"],
    });
    let matrix = json!({"file": "imatrix.gguf", "allow_partial": true, "exact": false});
    let statements = [(recipe.clone(), json!("block"), matrix), (recipe, json!("split"), Value::Null)];
    statements.map(|(recipe, layout, importance)| statement(recipe, layout, importance).to_string().into()).to_vec()
}

fn statement(recipe: Value, layout: Value, importance: Value) -> Value {
    let file = |name: &str, digit: &str| json!({"name": name, "digest": {"sha256": digit.repeat(64)}});
    let inputs = [file("model.gguf", "1"), file("imatrix.gguf", "2")];
    let count = if importance.is_null() { 1 } else { 2 };
    let tensor = json!({
        "name": "blk.0.ffn_up.weight", "shape": [64, 32], "source_type": "f32", "type": "q4_0", "bytes": 1152,
        "rmse": 0.01, "cosine": 0.999, "max_error": 0.1, "note": "", "sha256": "3".repeat(64),
        "scale_sha256": "4".repeat(64),
    });
    let mut output = file("out.gguf", "5");
    output["annotations"] = json!({"tensors": [tensor]});
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [output],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:trueup:quantize:v1",
                "externalParameters": {
                    "source": "model.gguf", "recipe": recipe, "layout": layout, "importance": importance,
                },
                "resolvedDependencies": inputs[..count],
            },
            "runDetails": {"builder": {"id": "urn:trueup", "version": {"trueup": "0.1.0"}}},
        },
    })
}

/// Reads a statement, its options and its names, and writes it again.
pub fn run(input: &[u8], folder: &Path) -> Result<Answer, String> {
    let path = folder.join("out.intoto.json");
    later(fs::write(&path, input), "the input can be written")?;
    let attestation = match Attestation::read(&path) {
        Ok(attestation) => attestation,
        Err(problem) => return refused(&problem),
    };
    let places = [Some(attestation.source_in(folder)), attestation.importance_in(folder)];
    law(places.iter().flatten().all(|place| place.parent() == Some(folder)), "inputs are in the folder")?;
    let copy = folder.join("copy.json");
    let text = later(serde_json::to_string(&attestation), "the statement can be written")?;
    later(fs::write(&copy, text), "the copy can be written")?;
    law(later(Attestation::read(&copy), "the copy can be read")? == attestation, "the copy is the statement")?;
    match attestation.options(&path, None) {
        Ok(_) => Ok(Answer::Accepted("statement")),
        Err(problem) => refused(&problem),
    }
}
