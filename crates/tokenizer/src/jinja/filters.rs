//! Filters: `value|name`. Those on text are in [`super::text_filters`], those on lists in [`super::list_filters`].

use super::arguments::Arguments;
use super::problem::{Checked, Problem};
use super::renderer::Renderer;
use super::value::Value;
use super::{list_filters, text_filters};

/// What runs a filter.
pub(super) type Filter = fn(&mut Renderer<'_>, &Value, Arguments) -> Checked<Value>;

fn find(name: &str) -> Option<Filter> {
    let all = text_filters::FILTERS.iter().chain(list_filters::FILTERS);
    all.into_iter().find(|(own, _)| *own == name).map(|(_, filter)| *filter)
}

pub(super) fn exists(name: &str) -> bool {
    find(name).is_some()
}

/// The value of a filter.
pub(super) fn apply(renderer: &mut Renderer<'_>, name: &str, value: &Value, arguments: Arguments) -> Checked<Value> {
    let filter = find(name).ok_or_else(|| Problem::new(format!("the filter {name} is not supported")))?;
    renderer.deeper(|renderer| filter(renderer, value, arguments))
}
