//! Arguments of a call.

use super::problem::{Checked, Problem};
use super::value::Value;

/// Values by place and by name.
#[derive(Default, Debug)]
pub(super) struct Arguments {
    pub(super) positional: Vec<Value>,
    pub(super) named: Vec<(Box<str>, Value)>,
}

impl Arguments {
    /// The values of the parameters `names`; fails when there are others.
    pub(super) fn bind<const COUNT: usize>(
        self,
        function: &str,
        names: [&str; COUNT],
    ) -> Checked<[Option<Value>; COUNT]> {
        if self.positional.len() > COUNT {
            let found = self.positional.len();
            return Err(Problem::new(format!("{function} takes at most {COUNT} arguments, found {found}")));
        }
        let mut values = [const { None }; COUNT];
        for (slot, value) in values.iter_mut().zip(self.positional) {
            *slot = Some(value);
        }
        for (name, value) in self.named {
            let place = names.iter().position(|own| **own == *name);
            match place.and_then(|place| values.get_mut(place)) {
                Some(slot) if slot.is_none() => *slot = Some(value),
                Some(_) => return Err(Problem::new(format!("{function} gets the argument {name} twice"))),
                None => return Err(Problem::new(format!("{function} has no argument {name}"))),
            }
        }
        Ok(values)
    }

    /// Fails when there are any.
    pub(super) fn none(self, function: &str) -> Checked<()> {
        self.bind::<0>(function, []).map(|_| ())
    }
}
