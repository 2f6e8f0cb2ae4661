//! Computations that begin at a later layer give the bits of those that begin at the embedding.

use super::{bits, device, entries, model, prompts, session};
use std::collections::BTreeMap;
use trueup_blocks::DType;
use trueup_graph::Node;
use trueup_runtime::{Observer, Result, Seen, SessionOptions};

/// Keeps the residual stream before each layer but the first.
#[derive(Default)]
struct Streams(BTreeMap<usize, Vec<f32>>);

impl Observer for Streams {
    fn wants(&self, node: &Node) -> bool {
        node.layer.is_some_and(|layer| node.name == format!("l_out-{layer}"))
    }

    fn saw(&mut self, seen: &Seen<'_>) -> Result<()> {
        let layer = seen.node().layer.unwrap();
        self.0.entry(layer + 1).or_default().extend(seen.output()?.values().iter().map(|x| *x as f32));
        Ok(())
    }
}

#[test]
fn the_rest_of_a_model_gives_the_bits_of_the_whole() {
    for dtype in [DType::F32, DType::Q8_0] {
        let (_folder, model) = model(dtype, false);
        // The long prompt is computed in several batches.
        let options = SessionOptions { sequences: 4, prompt_chunk: 50, ..SessionOptions::default() };
        let entries = entries(&prompts());
        let mut streams = Streams::default();
        session(&model, device("cpu"), options).compute(&entries, Some(&mut streams)).unwrap();
        let whole = bits(&mut session(&model, device("cpu"), options), &entries);
        let layers = model.model().spec().layer_count();
        assert!(layers > 1 && streams.0.len() == layers);
        for layer in 1..layers {
            let mut session = session(&model, device("cpu"), options);
            let logits = session.compute_from(layer, &streams.0[&layer], &entries).unwrap();
            let rest: Vec<Vec<u64>> =
                (0..logits.rows()).map(|row| logits.row(row).iter().map(|logit| logit.to_bits()).collect()).collect();
            assert_eq!(rest, whole, "{dtype}, from layer {layer} on");
            let error = session.compute_from(layer, &streams.0[&layer][1..], &entries).unwrap_err().to_string();
            assert!(error.starts_with("expected a decoder, a layer below "), "{error}");
        }
    }
}
