//! What the machine can do at most, for people; `ops perf` and `bench` share it.

use trueup::formats::counted;
use trueup::runtime::Roof;

/// The roof in one line, or that there is none for the device.
pub fn line(roof: Option<&Roof>, device: &str) -> String {
    match roof {
        None => format!("{device}: no roof is measured on this device"),
        Some(roof) => format!(
            "roof of {}, measured in this run: reading {:.1} GB/s, copying {:.1} GB/s, in registers ({}) f32 multiply-add {:.1} GFLOP/s, \
             {}products of 8-bit codes {:.1} GOP/s",
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
