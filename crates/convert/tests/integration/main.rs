//! Conversion, comparison and diagnosis of models.

mod check;
mod diff;
mod doctor;
mod draft;
mod faults;
mod fixtures;
mod layouts;
mod resume;
