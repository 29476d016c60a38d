//! The model checker: every history of a few owners and slots, up to a bound, by stateright.

mod agents;
mod agents_run;
mod calm;
pub(crate) mod configurations;
mod controllers;
mod rerun;
