//! Why a pod is not injected, and what to do instead.

use thiserror::Error;

use super::agent::{NAME, SOCKET, TOKEN_VOLUME, VOLUME};
use super::annotations::{CONTAINERS, SLOT, names};

/// Why an annotated pod is refused. The webhook and the policies say it in the same words.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// An annotation has a value that it can't have.
    #[error("annotation {annotation}: \"{value}\" is not one of: {allowed}")]
    BadValue {
        /// Which.
        annotation: &'static str,
        /// What it has.
        value: String,
        /// What it may have.
        allowed: &'static str,
    },
    /// There is no such annotation.
    #[error("annotation {annotation} is not known; there are: {}", names())]
    Unknown {
        /// Which.
        annotation: String,
    },
    /// The pod has no number.
    #[error(
        "annotation {SLOT}: ordinal and prefer:ordinal need a pod whose name ends in its number, as a StatefulSet's do; \
         use auto, or a StatefulSet"
    )]
    NoOrdinal,
    /// The pod is for other machines.
    #[error(
        "agents run on Linux only, and this pod is for Windows (spec.os.name or spec.nodeSelector): take the annotation {SLOT} \
         out, or run it on Linux"
    )]
    Windows,
    /// A container is named that the pod does not have.
    #[error("annotation {CONTAINERS}: the pod has no container \"{container}\"; it has: {found}")]
    NoSuchContainer {
        /// The name.
        container: String,
        /// Those there are.
        found: String,
    },
    /// Somebody has written a part of what is injected.
    #[error(
        "the pod has a part of the agent that was not injected (a container {NAME}, a volume {VOLUME} or {TOKEN_VOLUME}): \
         take all of it out, or the annotation {SLOT}"
    )]
    HandWritten,
    /// A container has its own idea of the socket.
    #[error(
        "container {container} sets COSID_SOCKET itself, to another value than {SOCKET}: take that out, or name the \
         containers that get IDs in the annotation {CONTAINERS}"
    )]
    OtherSocket {
        /// Which.
        container: String,
    },
    /// A container mounts something else where the socket is to be.
    #[error(
        "container {container} mounts another volume at /run/cosid: mount that elsewhere, or name the containers that get \
         IDs in the annotation {CONTAINERS}"
    )]
    OtherMount {
        /// Which.
        container: String,
    },
}
