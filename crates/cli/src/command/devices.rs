//! `trueup devices`: lists the compute devices, with the reason if one is unavailable.

use crate::failure::{Code, Result};
use crate::output;
use crate::table::{Column, Side, table};
use clap::Args;
use serde_json::json;
use trueup::runtime::{DeviceOptions, list_devices};

const EXAMPLES: &str = "\
Examples:
  trueup devices
  trueup devices --json";

/// Arguments of `trueup devices`.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Runs `trueup devices`.
pub fn run(arguments: Arguments) -> Result {
    let devices = list_devices(&DeviceOptions::default());
    if arguments.json {
        output::json(&json!({"devices": devices}))?;
        return Ok(Code::Done);
    }
    let columns =
        [("device", Side::Left), ("status", Side::Left), ("memory", Side::Right), ("description", Side::Left)];
    let rows = devices.iter().map(|device| {
        let status = match (device.available, device.simulated) {
            (true, true) => "available, simulated",
            (true, false) => "available",
            (false, true) => "unavailable, simulated",
            (false, false) => "unavailable",
        };
        let memory = device
            .memory_bytes
            .map_or_else(String::new, |bytes| format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64));
        [device.name.clone(), status.to_owned(), memory, device.description.clone()]
    });
    output::line(&table(columns.map(|(title, side)| Column(title, side)), &rows.collect::<Vec<_>>()))?;
    Ok(Code::Done)
}
