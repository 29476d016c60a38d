//! Injection: what an annotated pod gets, so that its containers have IDs. Pure, and the same by either way.
//!
//! [`patch`] answers the webhook; [`policy`] has the API server do the same by itself, from the same texts: the
//! annotations are a [table](annotations::ANNOTATIONS), the agent is one [value](agent), and a [refusal](Refusal) is worded
//! once.

pub mod agent;
pub mod annotations;
mod cel;
pub mod hints;
pub mod patch;
pub mod policy;
mod refusal;
pub mod registration;

pub use agent::{Agent, Resources};
pub use refusal::Refusal;

/// Namespaces in which nothing is injected, besides the controller's own: the cluster's, which must come up without it.
pub const LEFT_OUT: [&str; 3] = ["kube-node-lease", "kube-public", "kube-system"];
