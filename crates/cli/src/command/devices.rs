//! `trueup devices`: what is here to compute on, and what is not and why.

use crate::failure::{Code, Result};
use crate::output;
use clap::Args;
use comfy_table::{Table, presets};
use serde_json::json;
use trueup::runtime::{DeviceOptions, list_devices};

/// What `trueup devices` takes.
#[derive(Args)]
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
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["device", "", "memory", "what"]);
    for device in &devices {
        let here = match (device.available, device.simulated) {
            (true, true) => "here, simulated",
            (true, false) => "here",
            (false, true) => "not here (would be simulated)",
            (false, false) => "not here",
        };
        let memory = device
            .memory_bytes
            .map_or_else(String::new, |bytes| format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64));
        table.add_row([device.name.as_str(), here, &memory, &device.description]);
    }
    output::line(&table.to_string())?;
    Ok(Code::Done)
}
