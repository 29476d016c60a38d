//! What an agent finds in its directory when it starts, and must not go on with: the faults of files, which neither the
//! model nor the simulator has. Each is made with the product's own window page, on the disk.

use std::error::Error;
use std::fs;
use std::path::Path;

use cosid_agent::{StatusBoard, Window};
use cosid_id::{Layout, PageOwner};
use cosid_lease::keeper::Binding;
use cosid_lease::{Holding, Owner, Terms};
use serde_json::Value;
use tempfile::TempDir;

const POOL: &str = "shop/orders";
const KEY: &str = "shop/web-0";
/// Where an agent saves what it holds.
const STATE: &str = "lease.json";

type Outcome<T> = Result<T, Box<dyn Error>>;

/// What becomes of the directory of an agent that was killed, until the next one serves it or another.
type Deed = fn(TempDir) -> Outcome<TempDir>;

/// Each with what it leaves.
const DEEDS: [(&str, Deed); 4] = [
    ("a page that was closed", close),
    ("a page of before the machine was started again", boot),
    ("a copy of the directory", copy),
    ("half a state file", tear),
];

/// Does each to a directory of its own; what an agent goes on with then and must not. Blocks.
///
/// # Errors
/// The disk's; and that an agent does not go on with what was left as it was.
pub(crate) fn gone_on_with() -> Outcome<Option<&'static str>> {
    if !resumes(held()?.path())? {
        return Err("an agent that was killed does not go on when it is started again".into());
    }
    for (what, deed) in DEEDS {
        if resumes(deed(held()?)?.path())? {
            return Ok(Some(what));
        }
    }
    Ok(None)
}

/// The directory of an agent that held a slot and was killed.
fn held() -> Outcome<TempDir> {
    let directory = TempDir::new()?;
    let window = window(directory.path());
    let holding = Holding {
        owner: Owner::new(KEY),
        floor: 1_790_000_000_000,
        ceiling: 1_790_000_007_000,
        expires_at: 1_790_000_006_000,
        acquired_at: 1_790_000_000_000,
    };
    let terms = Terms { ttl: 6_000, tolerance: 1_000 };
    window.hold(POOL, Ok(Layout::MILLISECOND), Binding { slot: 3, fence: 7, holding, terms });
    Ok(directory)
}

fn window(directory: &Path) -> Window {
    Window::new(directory, StatusBoard::new(KEY))
}

fn resumes(directory: &Path) -> Outcome<bool> {
    Ok(window(directory).resume(KEY, Some(POOL))?.is_some())
}

/// The agent was killed after it had closed its page, and before it removed what it had saved.
fn close(directory: TempDir) -> Outcome<TempDir> {
    for file in fs::read_dir(directory.path())? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "page") {
            // Nothing was issued: what was issued last is no matter here.
            let _ = PageOwner::open(path)?.close();
        }
    }
    Ok(directory)
}

/// What a machine has in memory may not be on its disk: the page may be older than the IDs that came from it.
fn boot(directory: TempDir) -> Outcome<TempDir> {
    let path = directory.path().join(STATE);
    let mut state: Value = serde_json::from_slice(&fs::read(&path)?)?;
    state["bootId"] = "00000000-0000-4000-8000-000000000000".into();
    fs::write(&path, serde_json::to_vec(&state)?)?;
    Ok(directory)
}

/// A volume was cloned: two agents would have one window, each with a page of its own.
fn copy(directory: TempDir) -> Outcome<TempDir> {
    let copy = TempDir::new()?;
    for file in fs::read_dir(directory.path())? {
        let file = file?;
        fs::copy(file.path(), copy.path().join(file.file_name()))?;
    }
    Ok(copy)
}

fn tear(directory: TempDir) -> Outcome<TempDir> {
    let path = directory.path().join(STATE);
    let state = fs::read(&path)?;
    fs::write(&path, &state[..state.len() / 2])?;
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_goes_on_with_its_own_page_of_this_boot_and_with_no_other() {
        assert_eq!(gone_on_with().unwrap(), None);
    }
}
