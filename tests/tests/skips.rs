//! What this machine cannot test, said where it can be seen: the test harness swallows what passing tests print.
#![allow(clippy::print_stdout, reason = "a runner of its own reports by printing")]

use trueup::runtime::device::cpu::Isa;
use trueup::runtime::{DeviceOptions, list_devices};
use trueup_tests::{DOWNLOADED_MODELS, downloaded_model};

fn main() {
    let missing: Vec<&str> = Isa::ALL.iter().filter(|isa| !isa.is_available()).map(|isa| isa.name()).collect();
    for isa in &missing {
        println!(
            "skipped: the {isa} variants of all block codecs and of all kernels of cpu, which this machine cannot run"
        );
    }
    let devices = list_devices(&DeviceOptions::default());
    let absent: Vec<_> = devices.iter().filter(|device| !device.available).collect();
    for device in &absent {
        println!("skipped: everything on {}: {}", device.name, device.description);
    }
    for (model, test) in DOWNLOADED_MODELS.iter().filter(|(model, _)| downloaded_model(model).is_none()) {
        println!("skipped: {test}: the model is missing; run scripts/real_models.py {model}");
    }
    let here = devices.iter().filter(|device| device.available).count();
    println!(
        "{} instruction sets and {here} devices are tested, {} skipped",
        Isa::ALL.len() - missing.len(),
        missing.len() + absent.len()
    );
}
