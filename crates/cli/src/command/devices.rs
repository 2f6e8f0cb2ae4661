//! `trueup devices`: what is here to compute on, and what is not and why.

use crate::failure::{Code, Result};
use crate::output;
use crate::table::{Column, Side, table};
use clap::Args;
use serde_json::json;
use trueup::runtime::{DeviceOptions, list_devices};

/// What `trueup devices` takes.
#[derive(Args)]
#[command(after_help = "Examples:\n  trueup devices\n  trueup devices --json")]
pub struct Arguments {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Lists.
pub fn run(arguments: Arguments) -> Result {
    let devices = list_devices(&DeviceOptions::default());
    if arguments.json {
        output::json(&json!({"devices": devices}))?;
        return Ok(Code::Done);
    }
    let columns = [("device", Side::Left), ("state", Side::Left), ("memory", Side::Right), ("what", Side::Left)];
    let rows = devices.iter().map(|device| {
        let here = match (device.available, device.simulated) {
            (true, true) => "here, simulated",
            (true, false) => "here",
            (false, true) => "not here, simulated",
            (false, false) => "not here",
        };
        let memory = device
            .memory_bytes
            .map_or_else(String::new, |bytes| format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64));
        [device.name.clone(), here.to_owned(), memory, device.description.clone()]
    });
    output::line(&table(columns.map(|(title, side)| Column(title, side)), &rows.collect::<Vec<_>>()))?;
    Ok(Code::Done)
}
