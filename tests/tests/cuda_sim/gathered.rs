//! Products of two cards whose halves NCCL gathers, or which are copied where there is none: the bits of one card, and
//! each gather is counted.

use super::cards::{logits, weights};
use super::products;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use trueup::runtime::device::{Decorator, Device, Pair, Tensor};
use trueup::runtime::{DeviceOptions, Error, ModelFile, Weights, open_device};

/// The first card of a pair, whose gathers are counted, or left out as where there is no NCCL.
struct Watched {
    card: Arc<dyn Device>,
    gathers: bool,
    count: AtomicUsize,
}

impl Decorator for Watched {
    fn device(&self) -> &dyn Device {
        &*self.card
    }

    fn copy(&self, source: &Tensor, from: &dyn Device, target: &Tensor) -> Result<(), Error> {
        self.card.copy(source, from, target)
    }

    fn gather(&self, ours: &Tensor, theirs: &Tensor) -> Result<Option<&str>, Error> {
        if !self.gathers {
            return Ok(None);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.card.gather(ours, theirs)
    }
}

/// What is not right about halves that NCCL gathers, and halves that are copied; `cards` is how the cards are called.
pub fn gathered(model: &Path, cards: &str) -> Vec<String> {
    let found = tried(model, cards).unwrap_or_else(|error| Some(error.to_string()));
    let wrong: Vec<String> = found.into_iter().collect();
    println!("{cards}, simulated: halves of products gathered and copied, {} wrong", wrong.len());
    wrong
}

fn tried(model: &Path, cards: &str) -> Result<Option<String>, Error> {
    let open = |number: usize| open_device(&format!("{cards}:{number}"), &DeviceOptions::default());
    let one = open(0)?;
    let expected = logits(&weights(model, &format!("{cards}:0"), &[])?)?;
    for gathers in [true, false] {
        let first = Arc::new(Watched { card: open(0)?, gathers, count: AtomicUsize::new(0) });
        let pair: Arc<dyn Device> = Arc::new(Pair::new(Arc::clone(&first) as Arc<dyn Device>, open(1)?));
        let description = pair.about().description;
        if description.contains("gathered by the stand-in for NCCL 2.27.3") != gathers {
            return Ok(Some(format!("gathers: {gathers}, and the pair is described so: {description}")));
        }
        let count = || first.count.load(Ordering::Relaxed);
        let wrong = products::divided(&*one, &*pair, &count, gathers);
        if !wrong.is_empty() {
            return Ok(Some(wrong.join("\n")));
        }
        let before = count();
        let found = logits(&Arc::new(Weights::new(Arc::new(ModelFile::open(model)?), pair, None)))?;
        if found != expected || (count() > before) != gathers {
            return Ok(Some(format!("{} gathers, the bits of one card: {}", count() - before, found == expected)));
        }
    }
    Ok(None)
}
