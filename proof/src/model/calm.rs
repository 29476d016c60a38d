//! Whoever can get a slot in the end does: from every state there is, once nothing goes wrong any more.
//!
//! The calm continuation is one history: whatever is due is done, every request arrives and is answered, and time passes
//! when nothing else does. So it is checked along with each state and not explored.

use super::agents::{Bounds, State, Step};
use stateright::Model as _;

/// More steps than any calm history takes.
const MOST_STEPS: usize = 400;

/// Whether, in calm, as many owners come to hold a slot as there are slots for, or all that want one.
pub(crate) fn everybody_is_served(bounds: &Bounds, state: &State) -> bool {
    // It costs more than a step does: from the states that have something left to go wrong, calm follows as well.
    if state.left.passes > 0 {
        return true;
    }
    let mut calm = state.clone();
    calm.left = Default::default();
    calm.left.passes = u8::MAX;
    for _ in 0..MOST_STEPS {
        let wanting = calm.hosts.iter().filter(|host| host.keeper.is_some()).count();
        let holding = calm.hosts.iter().filter(|host| host.keeper.is_some() && host.window.is_some()).count();
        if holding >= wanting.min(calm.slots.len()) || calm.broken.is_some() {
            return true;
        }
        let mut steps = Vec::new();
        bounds.actions(&calm, &mut steps);
        let first = |wanted: fn(&Step) -> bool| steps.iter().find(|step| wanted(step)).cloned();
        let next = first(|step| matches!(step, Step::Arrive(_) | Step::Answer(_)))
            .or_else(|| first(|step| !matches!(step, Step::Pass(_) | Step::ArriveLate(_))))
            .or_else(|| first(|step| matches!(step, Step::Pass(_))));
        let Some(next) = next else { return false };
        calm.take(bounds, next);
        calm.left.passes = u8::MAX;
    }
    false
}
