//! The measured hardware limit as text; `ops perf` and `bench` share it.

use trueup::formats::counted;
use trueup::runtime::Roof;

/// Describes the hardware limit in one line. `None` means it is not measured on this device.
pub fn line(roof: Option<&Roof>, device: &str) -> String {
    match roof {
        None => format!("{device}: the hardware limit is not measured on this device"),
        Some(roof) => format!(
            "hardware limit of {}, measured in this run: read {:.1} GB/s, copy {:.1} GB/s; in registers ({}): f32 \
             {:.1} GFLOP/s, {}int8 {:.1} GOP/s",
            counted(roof.threads, roof.unit),
            roof.read_gb_per_s,
            roof.copy_gb_per_s,
            roof.isa,
            roof.multiply_gflop_per_s,
            roof.f16_gflop_per_s.map_or_else(String::new, |giga| format!("f16 {giga:.1} GFLOP/s, ")),
            roof.int8_gop_per_s
        ),
    }
}
