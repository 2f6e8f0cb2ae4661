//! `trueup verify --inject-fault list`: prints the faults that can be injected.

use crate::failure::Result;
use crate::output;
use crate::table::{Column, Side, table};
use serde_json::json;
use std::path::Path;
use trueup::verify::PLANTS;

/// The value that prints the list.
pub const LIST: &str = "list";

/// Prints the list of faults, as a table or as JSON.
pub fn list(json_file: Option<&Path>) -> Result<()> {
    if let Some(file) = json_file {
        let entries: Vec<_> =
            PLANTS.iter().map(|plant| json!({"name": plant.name, "what": plant.what, "ops": plant.ops})).collect();
        return output::document(file, &serde_json::to_string(&entries)?);
    }
    let columns = ["fault", "operators", "effect"].map(|title| Column(title, Side::Left));
    let row = |plant: &trueup::verify::Plant| [plant.name.to_owned(), plant.ops.join(", "), plant.what.to_owned()];
    output::line(&table(columns, &PLANTS.iter().map(row).collect::<Vec<_>>()))
}
