//! `trueup verify --inject-fault`: faults on purpose, so that the gate is seen to fail before its passing is trusted.

use crate::failure::Result;
use crate::output;
use crate::table::{Column, Side, table};
use serde_json::json;
use std::path::Path;
use trueup::verify::PLANTS;

/// The choice that shows all others.
pub const LIST: &str = "list";

/// Shows what can be planted.
pub fn list(json_file: Option<&Path>) -> Result<()> {
    if let Some(file) = json_file {
        let entries: Vec<_> =
            PLANTS.iter().map(|plant| json!({"name": plant.name, "what": plant.what, "ops": plant.ops})).collect();
        return output::document(file, &serde_json::to_string(&entries)?);
    }
    let columns = ["fault", "at", "what goes wrong"].map(|title| Column(title, Side::Left));
    let row = |plant: &trueup::verify::Plant| [plant.name.to_owned(), plant.ops.join(", "), plant.what.to_owned()];
    output::line(&table(columns, &PLANTS.iter().map(row).collect::<Vec<_>>()))
}
