//! What the end-to-end tests and the demo share.

pub mod agent;
pub mod bent;
pub mod cases;
pub mod cosid;
pub mod disk;
pub mod drill;
pub mod faults;
pub mod ground;
pub mod http;
pub mod ids;
pub mod languages;
pub mod makers;
pub mod pods;
pub mod referee;
