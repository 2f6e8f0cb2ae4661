//! What a GGUF file says under its architecture's name, but other programs that read it do not take from it.
//!
//! ```text
//! Architecture::gaps ── those that this model's numbers touch ──▶ a sentence each, told when such a file is written
//! ```

use crate::architecture::{Architecture, Condition};
use crate::hyper::Hyper;
use crate::role::Role;

/// A part of a model that other GGUF programs do not take from a file of the architecture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gap {
    /// They ignore the key of the sliding window.
    SlidingWindow,
    /// They do not load a file with the tensor of rotation factors.
    RopeFactors,
    /// They tell by the number of layers whether positions lower scores by distance.
    Alibi,
}

impl Gap {
    /// What a person should know when a model with these numbers is written; `None` when it does not have the part.
    fn note(self, architecture: &Architecture, hyper: &Hyper) -> Option<String> {
        let name = architecture.gguf_name;
        match self {
            Gap::SlidingWindow => hyper.window().map(|_| {
                format!("{name}.attention.sliding_window is written; programs that ignore it attend to everything")
            }),
            Gap::Alibi => {
                let rule = architecture.parts.alibi?;
                let theirs = hyper.layers() == rule.layers;
                (theirs != hyper.alibi().is_some()).then(|| {
                    let layers = rule.layers;
                    format!(
                        "{name}.attention.max_alibi_bias is written; programs that ignore it apply ALiBi \
                        only to models with {layers} layers"
                    )
                })
            }
            Gap::RopeFactors => hyper.conditions().holds(Condition::RopeFactors).then(|| {
                let tensor = Role::RopeFactors.name(0);
                format!(
                    "{tensor} is written for the llama3 RoPE scaling; other programs do not \
                    expect this tensor for {name} and may reject the file"
                )
            }),
        }
    }
}

impl Architecture {
    /// What a person should know about a GGUF file with these numbers: a sentence for each part that other programs do
    /// not take from it.
    pub fn notes(&self, hyper: &Hyper) -> Vec<String> {
        self.gaps.iter().filter_map(|gap| gap.note(self, hyper)).collect()
    }
}
