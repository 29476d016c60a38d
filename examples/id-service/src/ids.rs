//! From the agent to an ID, as an async program gets it.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use cosid_client::{Client, Error, Generator, Id, serde_string};
use serde::Serialize;

/// An ID as it is answered: as a string, since JavaScript's numbers are too small for it.
#[derive(Debug, Serialize)]
pub(crate) struct Made {
    #[serde(with = "serde_string")]
    id: Id,
    /// The slot it was made on: another pod's IDs have another.
    slot: u32,
}

/// The way to IDs.
#[derive(Debug)]
pub(crate) struct Ids {
    socket: Option<PathBuf>,
    name: String,
    patience: Duration,
    /// Made at the first request that can: the service is up, and says what is wrong, before there is an agent.
    generator: OnceLock<Generator>,
}

impl Ids {
    /// Connects to nobody yet. Without a socket `COSID_SOCKET` says where it is.
    pub(crate) fn new(socket: Option<PathBuf>, name: String, patience: Duration) -> Self {
        Self { socket, name, patience, generator: OnceLock::new() }
    }

    /// The next ID. Mostly there at once; where it has to be waited for, other tasks go on meanwhile. Must be called on
    /// a runtime of several threads.
    pub(crate) fn next(&self) -> Result<Made, Error> {
        if let Some(generator) = self.generator.get()
            && let Ok(id) = generator.try_next_id()
        {
            return Ok(made(generator, id));
        }
        tokio::task::block_in_place(|| {
            let generator = self.generator()?;
            generator.next_id().map(|id| made(generator, id))
        })
    }

    fn generator(&self) -> Result<&Generator, Error> {
        if let Some(generator) = self.generator.get() {
            return Ok(generator);
        }
        let client = match &self.socket {
            Some(socket) => Client::connect_to(socket),
            None => Client::connect(),
        }?;
        let generator = client.with_timeout(self.patience).generator(&self.name)?;
        // Of two requests at once one is first; both generators make the IDs of the same name.
        Ok(self.generator.get_or_init(|| generator))
    }
}

fn made(generator: &Generator, id: Id) -> Made {
    // Its own slot: the generator may have moved to another meanwhile.
    let slot = generator.layout().decompose(id).map_or_else(|_| generator.slot(), |parts| parts.slot());
    Made { id, slot }
}
