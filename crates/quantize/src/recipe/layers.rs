//! The index of each tensor among the tensors of its kind. Recipes use it to vary types across layers.
//!
//! All tensors of a kind are counted, including those that a rule matches, so a rule for one tensor does not change the
//! type of another.

use super::facts::{ModelFacts, layer_of};
use super::role::Role;
use trueup_formats::TensorInfo;

/// Index `index` of `count` layers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Place {
    pub index: u64,
    pub count: u64,
}

/// The index of each tensor among attention values or feed-forward down matrices, in the order of layers. Other tensors
/// get index 0 of count 0. Only tensors with `is_quantized` are counted.
pub(super) fn places(tensors: &[TensorInfo], is_quantized: &[bool], facts: &ModelFacts) -> Vec<Place> {
    let roles: Vec<Role> = tensors.iter().map(|tensor| Role::of(&tensor.name)).collect();
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|number| (layer_of(&tensors[*number].name), tensors[*number].name.as_str()));
    let values = roles.iter().filter(|role| **role == Role::Value).count() as u64;
    let mut places = vec![Place::default(); tensors.len()];
    let (mut next_value, mut next_down) = (0, 0);
    for number in order.into_iter().filter(|number| is_quantized[*number]) {
        let (next, count) = match roles[number] {
            Role::Value => (&mut next_value, values),
            Role::FeedForwardDown => (&mut next_down, facts.layers),
            _ => continue,
        };
        // A layer can have several matrices of experts, so their index is not the layer index.
        let layer =
            layer_of(&tensors[number].name).filter(|_| roles[number] == Role::FeedForwardDown && facts.experts > 1);
        places[number] = Place { index: layer.unwrap_or(*next), count };
        *next += 1;
    }
    places
}
