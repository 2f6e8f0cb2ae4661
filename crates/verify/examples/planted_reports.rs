//! Writes HTML reports of a tiny model with injected faults, for visual inspection: `planted_reports FOLDER`.
//!
//! `pass.html` has no fault; `unwritten.html` and `precision.html` have one each. `layers.html` shows the nodes of
//! `precision.html` as those of a model with 60 layers. `scripts/report_screenshots.sh` makes pictures of them.

#[allow(dead_code, reason = "the runtime's tests use more of it")]
#[path = "../../runtime/tests/integration/tiny_model.rs"]
mod tiny_model;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_runtime::{DeviceOptions, ModelFile, open_device};
use trueup_verify::{Reference, Report, VerifyOptions, planted, verify};

const LAYERS: usize = 60;

fn main() -> Result<(), Box<dyn Error>> {
    std::env::set_current_dir(std::env::args_os().nth(1).ok_or("name a directory to write to")?)?;
    let cases =
        [("pass", None), ("unwritten", Some("row-unwritten@ffn_out-1")), ("precision", Some("output-f16@ffn_gate-0"))];
    for (name, fault) in cases {
        let report = report(fault)?;
        std::fs::write(format!("{name}.html"), report.to_html()?)?;
        if name == "precision" {
            std::fs::write("layers.html", stretched(&report).to_html()?)?;
        }
    }
    Ok(())
}

fn report(fault: Option<&str>) -> Result<Report, Box<dyn Error>> {
    let path = Path::new("tiny.gguf");
    tiny_model::write(path, DType::Q8_0, false);
    let model = Arc::new(ModelFile::open(path)?);
    let mut device = open_device("cpu", &DeviceOptions::default())?;
    if let Some(fault) = fault {
        device = planted(fault, &model, device)?.device;
    }
    let prompts = vec![vec![1, 5, 9, 20, 33, 47, 2, 11, 29, 30, 31, 5, 16], vec![40, 3]];
    let options = VerifyOptions { prompts, steps: 8, ..VerifyOptions::default() };
    Ok(verify(model, device, Reference::Oracle, &options, &mut |_| {})?)
}

/// The same report as of a model with [`LAYERS`] layers: the nodes of the first layer are repeated.
fn stretched(report: &Report) -> Report {
    let mut long = report.clone();
    let is_first = |layer: Option<usize>| layer == Some(0);
    let behind = report.nodes.iter().rposition(|node| is_first(node.layer)).map_or(0, |last| last + 1);
    let (head, tail) = report.nodes.split_at(behind);
    long.nodes = head.to_vec();
    for layer in 1..LAYERS - 1 {
        for node in report.nodes.iter().filter(|node| node.layer == Some(1)) {
            let mut node = node.clone();
            node.phases.iter_mut().for_each(|phase| phase.detail = None);
            node.node = node.node.replace("-1", &format!("-{layer}"));
            node.layer = Some(layer);
            long.nodes.push(node);
        }
    }
    for node in tail {
        let mut node = node.clone();
        if node.layer.is_some() {
            node.node = node.node.replace("-1", &format!("-{}", LAYERS - 1));
            node.layer = Some(LAYERS - 1);
        }
        long.nodes.push(node);
    }
    (long.coverage.nodes, long.coverage.checked) = (long.nodes.len(), long.nodes.len());
    (long.coverage.checked_prompt, long.coverage.checked_decode) = (long.nodes.len(), long.nodes.len());
    (long.coverage.nodes_decode, long.coverage.on_device) = (long.nodes.len(), long.nodes.len());
    long
}
