//! The model checker: every history of a few owners and slots, up to a bound, by stateright.

pub(crate) mod agents;
mod agents_run;
mod calm;
pub(crate) mod controllers;
mod rerun;
