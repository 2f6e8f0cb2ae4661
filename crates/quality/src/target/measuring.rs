//! Measures how much each type of a group increases the KL divergence of the base.

use super::divergence::Prediction;
use super::groups::Group;
use super::measurements::{Measured, Measurements};
use super::passes::{From, Streams, divergences};
use super::sensitivity::{UNFIT_ERROR, needed_errors};
use super::{TargetInput, TargetStep, Tuner, check, mean};
use std::collections::HashMap;
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_quantize::Encoder;
use trueup_runtime::{Result, Weights};

impl Tuner {
    /// Measures all groups that `known` does not contain. `save` is called after each group.
    ///
    /// # Errors
    /// Failures of devices, files or `save`; weights or logits that are not finite.
    pub fn measure(
        &mut self,
        known: &mut Measurements,
        save: &mut dyn FnMut(&Measurements) -> Result<()>,
        step: &mut dyn FnMut(TargetStep),
    ) -> Result<()> {
        let all = self.input.measures_all;
        let is_complete =
            |group: &Group| known.groups.get(&group.name).is_some_and(|found| found.is_complete(group, all));
        let missing: Vec<usize> = (0..self.groups.len()).filter(|number| !is_complete(&self.groups[*number])).collect();
        if missing.is_empty() && known.base_kl.is_some() {
            return Ok(());
        }
        self.compute_reference(step)?;
        let reference = self.reference.take().unwrap_or_default();
        let done = self.measure_groups(known, &reference, missing, save, step);
        self.reference = Some(reference);
        done
    }

    fn measure_groups(
        &self,
        known: &mut Measurements,
        reference: &[Prediction],
        mut missing: Vec<usize>,
        save: &mut dyn FnMut(&Measurements) -> Result<()>,
        step: &mut dyn FnMut(TargetStep),
    ) -> Result<()> {
        let all = self.groups.len();
        step(TargetStep::Groups(all - missing.len(), all));
        let types = self.groups.iter().flat_map(|group| group.tensors.iter().map(|tensor| (*tensor, group.base())));
        let (model, fault) = self.made(types.collect(), HashMap::new())?;
        let weights = Arc::new(self.weights(model));
        let mut streams = Streams::default();
        let mut session = self.session(weights.clone(), &fault)?;
        let corpus = &self.input.corpus;
        let base = divergences(&mut session, corpus, reference, None, Some(&mut streams), &mut || ())?;
        check(&fault)?;
        drop(session);
        known.base_kl = Some(mean(&base).value as f32);
        // Groups are measured in the order of layers, so that streams of earlier layers can be dropped.
        missing.sort_by_key(|number| self.first_layer(&self.groups[*number]));
        for (place, number) in missing.iter().enumerate() {
            let group = &self.groups[*number];
            streams.forget_before(self.first_layer(group));
            let mut measured = known.groups.get(&group.name).cloned().unwrap_or_default();
            self.measure_group(group, &mut measured, (&weights, &streams), (reference, &base))?;
            known.groups.insert(group.name.clone(), measured);
            save(known)?;
            step(TargetStep::Groups(all - missing.len() + place + 1, all));
        }
        Ok(())
    }

    fn measure_group(
        &self,
        group: &Group,
        measured: &mut Measured,
        (weights, streams): (&Arc<Weights>, &Streams),
        (reference, base): (&[Prediction], &[f64]),
    ) -> Result<()> {
        let TargetInput { source, importance, threads, .. } = &self.input;
        let encoder = Encoder::new(&**source, importance.as_deref(), *threads)?;
        let (anchors, wanted) = (group.anchors(), group.measured_types(self.input.measures_all));
        for dtype in needed_errors(group) {
            let (mut changed, mut error) = (HashMap::new(), 0.0);
            let may_not_fit = dtype != group.base() && group.candidates.len() > 1;
            for tensor in &group.tensors {
                let encoded = match may_not_fit {
                    true => encoder.encode_if_it_fits(*tensor, dtype)?,
                    false => Some(encoder.encode(*tensor, dtype)?),
                };
                error += encoded.as_ref().map_or(f64::INFINITY, |encoded| encoded.error);
                changed.extend(encoded.map(|encoded| (*tensor, encoded.bytes)));
            }
            if error.is_infinite() && anchors.contains(&dtype) {
                measured.kl.insert(dtype.name().to_owned(), [UNFIT_ERROR, 0.0]);
            }
            measured.errors.insert(dtype.name().to_owned(), (error as f32).min(UNFIT_ERROR));
            if error.is_infinite() || !wanted.contains(&dtype) || measured.kl.contains_key(dtype.name()) {
                continue;
            }
            self.measure_type((group, dtype), measured, changed, (weights, streams), (reference, base))?;
        }
        if let Some(dtype) = measured.lossy_anchor(group).filter(|dtype| !measured.kl.contains_key(dtype.name())) {
            let mut changed = HashMap::new();
            for tensor in &group.tensors {
                changed.insert(*tensor, encoder.encode(*tensor, dtype)?.bytes);
            }
            self.measure_type((group, dtype), measured, changed, (weights, streams), (reference, base))?;
        }
        Ok(())
    }

    /// Measures the divergence of the base with a group in another type. `changed` has the bytes of its tensors.
    fn measure_type(
        &self,
        (group, dtype): (&Group, DType),
        measured: &mut Measured,
        changed: HashMap<usize, Vec<u8>>,
        (weights, streams): (&Arc<Weights>, &Streams),
        (reference, base): (&[Prediction], &[f64]),
    ) -> Result<()> {
        let corpus = &self.input.corpus;
        let names = self.graph_names(group, weights.model());
        let types = self.groups.iter().flat_map(|group| group.tensors.iter().map(|tensor| (*tensor, group.base())));
        let types = types.chain(group.tensors.iter().map(|tensor| (*tensor, dtype))).collect();
        let (model, fault) = self.made(types, changed)?;
        let weights = Arc::new(weights.with_changed(Arc::new(model), &names));
        let mut session = self.session(weights.clone(), &fault)?;
        let (layer, width) = (self.first_layer(group), weights.model().model().spec().hidden_size());
        let from = streams.before(layer, corpus, width).map(|stream| From { layer, stream });
        let found = divergences(&mut session, corpus, reference, from, None, &mut || ())?;
        check(&fault)?;
        let differences: Vec<f64> = found.iter().zip(base).map(|(found, base)| found - base).collect();
        let difference = mean(&differences);
        measured.kl.insert(dtype.name().to_owned(), [difference.value as f32, difference.error as f32]);
        Ok(())
    }
}
