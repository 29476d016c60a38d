//! What the development tasks and the end-to-end tests share: a control plane on this machine ([`cluster`]), steps
//! that show how long they take ([`progress`]), and where things are ([`paths`]).

pub mod admin;
pub mod client_check;
pub mod cluster;
pub mod containers;
pub mod demo;
mod error;
pub mod go;
pub mod image;
pub mod images;
pub mod installed;
pub mod java;
pub mod languages;
pub mod once;
pub mod paths;
pub mod programs;
pub mod progress;
pub mod tools;

pub use error::{Error, Result};
