//! Chooses the type of one tensor: see the diagram in [`super`].

use super::kept::{is_matrix, kept, stays_f32};
use super::role::Role;
use super::rule::Rule;
use super::scheme::Subject;
use super::width::type_that_fits;
use super::{Choice, ModelFacts, Recipe};
use trueup_blocks::DType;
use trueup_formats::TensorInfo;

/// A type for a tensor, before the row length and the size are checked.
pub(super) struct Wanted {
    dtype: DType,
    /// Why it is not the base type of the scheme; empty if it is, or if the user named it.
    note: String,
    /// Whether the user named it for this tensor.
    is_explicit: bool,
}

impl Recipe {
    /// A description of the tensor if it is never quantized, such as "a router of experts".
    pub(super) fn kept(&self, tensor: &TensorInfo, facts: &ModelFacts) -> Option<&'static str> {
        if self.is_left(tensor) { Some("the output head with --leave-output-tensor") } else { kept(tensor, facts) }
    }

    /// Whether the tensor is an output head that keeps its type.
    fn is_left(&self, tensor: &TensorInfo) -> bool {
        self.leave_output && Role::of(&tensor.name) == Role::Output
    }

    /// The choice for a tensor of integers, which is always copied.
    pub(super) fn not_a_number(&self, tensor: &TensorInfo) -> Choice {
        let wanted = self.rule(tensor).map(|rule| rule.dtype).filter(|wanted| *wanted != tensor.dtype);
        let note = wanted.map_or_else(String::new, |wanted| {
            format!("kept as {}, which is not a type of weights, instead of {wanted}", tensor.dtype)
        });
        Choice { dtype: tensor.dtype, falls_short: !note.is_empty(), note }
    }

    /// The choice for a tensor that is never quantized: it can only get another floating-point type.
    pub(super) fn not_quantized(&self, tensor: &TensorInfo, what: &str) -> Choice {
        let rule = self.rule(tensor).map(|rule| rule.dtype);
        let base = self.scheme.map(|scheme| scheme.base);
        let is_plain_matrix = is_matrix(tensor) && !stays_f32(&tensor.name);
        let as_float = match (rule, base) {
            (Some(dtype), _) => Some(dtype).filter(|dtype| dtype.is_float()),
            (None, _) if self.is_left(tensor) => None,
            (None, Some(DType::F32)) => Some(DType::F32),
            (None, Some(dtype)) if dtype.is_float() && is_plain_matrix => Some(dtype),
            (None, Some(_)) if tensor.dtype == DType::F64 => Some(DType::F32),
            (None, _) => None,
        };
        let is_explicit = rule.is_some();
        if let Some(dtype) = as_float {
            return self.not_larger(tensor, Choice { dtype, note: String::new(), falls_short: false }, is_explicit);
        }
        let kept = tensor.dtype;
        let note = match (rule, base) {
            (Some(rule), _) => format!("kept as {kept} instead of {rule}: {what} is not quantized"),
            (None, Some(base)) if base != kept => format!("kept as {kept}: {what}"),
            (None, _) => String::new(),
        };
        Choice { dtype: kept, note, falls_short: is_explicit }
    }

    /// The type that an option, a rule or the scheme names, whether or not it fits the rows.
    pub(super) fn wanted(&self, tensor: &TensorInfo, subject: &Subject, is_tied: bool) -> Wanted {
        if let Some(dtype) = self.named(tensor, subject.role, is_tied) {
            return Wanted { dtype, note: String::new(), is_explicit: true };
        }
        let plain = |dtype| Wanted { dtype, note: String::new(), is_explicit: false };
        if let Some(dtype) = self.assigned.get(&tensor.name) {
            return plain(*dtype);
        }
        let is_output = is_output(subject.role, is_tied);
        let Some(scheme) = self.scheme else { return plain(tensor.dtype) };
        if self.pure || !scheme.base.is_quantized() {
            return plain(scheme.base);
        }
        let (dtype, tensors) = scheme.choose(&tensor.name, subject, is_output);
        let is_other = dtype != scheme.base;
        let note = if is_other { format!("{scheme} uses {dtype} for {tensors}") } else { String::new() };
        Wanted { dtype, note, is_explicit: false }
    }

    /// The type that an option or a rule of the user names for the tensor.
    pub(super) fn named(&self, tensor: &TensorInfo, role: Role, is_tied: bool) -> Option<DType> {
        let rule = self.rule(tensor).map(|rule| rule.dtype);
        let is_named = tensor.name != "token_embd.weight" && rule.is_some();
        let of_embedding = self.token_embedding.filter(|_| role == Role::TokenEmbedding && !is_named);
        let of_output = self.output.filter(|_| role == Role::Output);
        of_embedding.or(of_output).or(rule).or(self.output.filter(|_| is_output(role, is_tied)))
    }

    /// The wanted type, or a type with smaller blocks if its blocks do not divide the rows.
    pub(super) fn fitted(&self, tensor: &TensorInfo, wanted: Wanted) -> Choice {
        let columns = tensor.shape.first().copied().unwrap_or(1);
        let asked = wanted.dtype;
        let dtype = type_that_fits(asked, columns);
        let choice = if dtype == asked {
            Choice { dtype, note: wanted.note, falls_short: false }
        } else {
            let length = asked.block_len();
            let note = format!(
                "stored as {dtype}: the row length {columns} is not a multiple of {length}, the block size of {asked}"
            );
            Choice { dtype, note, falls_short: true }
        };
        self.not_larger(tensor, choice, wanted.is_explicit)
    }

    /// The choice, or the source type if the chosen type has more bits. Only a float type for the whole model can be
    /// larger than the source.
    fn not_larger(&self, tensor: &TensorInfo, choice: Choice, is_explicit: bool) -> Choice {
        let is_larger = choice.dtype.bits_per_weight() > tensor.dtype.bits_per_weight();
        let is_whole_model = self.scheme.is_some_and(|scheme| scheme.base.is_float() && scheme.base == choice.dtype);
        if !is_larger || is_whole_model {
            return choice;
        }
        let note = format!("kept as {}: {} is larger", tensor.dtype, choice.dtype);
        Choice { dtype: tensor.dtype, note, falls_short: is_explicit }
    }

    fn rule(&self, tensor: &TensorInfo) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.pattern.is_match(&tensor.name))
    }
}

/// Whether the tensor is the output head, alone or as the token embedding.
fn is_output(role: Role, is_tied: bool) -> bool {
    role == Role::Output || is_tied && role == Role::TokenEmbedding
}
