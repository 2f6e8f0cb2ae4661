//! The place of each tensor among its kind, by which recipes vary types over the layers of a model.
//!
//! Places are counted over all tensors of a kind, whatever rules say about some of them: a rule for one tensor does not
//! change the type of another.

use super::facts::{ModelFacts, layer_of};
use super::role::Role;
use trueup_formats::TensorInfo;

/// Number `index` of `count` layers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Place {
    pub index: u64,
    pub count: u64,
}

/// The place of each tensor: its rank among attention values or feed-forward down matrices, in the order of layers.
/// Other tensors have the first place of none. `is_quantized` says which tensors count.
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
        // A layer can have several matrices of experts: their rank is not the number of the layer.
        let layer =
            layer_of(&tensors[number].name).filter(|_| roles[number] == Role::FeedForwardDown && facts.experts > 1);
        places[number] = Place { index: layer.unwrap_or(*next), count };
        *next += 1;
    }
    places
}
