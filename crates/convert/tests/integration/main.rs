//! Conversion, comparison and diagnosis of models.

mod diff;
mod doctor;
mod faults;
mod fixtures;
mod resume;
