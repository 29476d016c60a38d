//! The crate as its callers see it. One binary, a module a subject.

mod generator;
mod layout;
mod page;
mod processes;
mod properties;
mod threads;
mod virtual_time;
