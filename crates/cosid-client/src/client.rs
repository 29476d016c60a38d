//! The agent, as a program sees it: its socket, the page that it tells of, the generators on it.

use std::env;
use std::path::{self, Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use cosid_id::{Layout, Page};

use crate::answer::{Placement, refusal};
use crate::error::Error;
use crate::generator::{Generator, Named};
use crate::http;
use crate::lease::Lease;

/// The environment variable that says where the agent's socket is.
pub const SOCKET_VARIABLE: &str = "COSID_SOCKET";

/// How long a call that may wait does so at most, unless told otherwise: longer than an agent with a free slot
/// in its pool needs for a new page, shorter than callers of a service give up.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes that a generator's name may have.
const MAX_NAME_LEN: usize = 64;

/// A program's way to its agent. Cheap to clone; clones share everything. Holds no connection and no file open,
/// so that a process may fork at any time and use it on both sides.
#[derive(Clone, Debug)]
pub struct Client {
    agent: Arc<Agent>,
    /// Each name once: its generators then move to a new page together.
    named: Arc<ArcSwap<Vec<Arc<Named>>>>,
    timeout: Duration,
}

impl Client {
    /// Finds the agent by the environment variable `COSID_SOCKET` and asks it once whether it is there. Blocks
    /// for at most [`DEFAULT_TIMEOUT`]. Whether the agent holds a slot does not matter yet.
    ///
    /// # Errors
    /// [`Error::NoSocket`] if the variable is not set or empty, else those of [`Client::connect_to`].
    pub fn connect() -> Result<Self, Error> {
        match env::var_os(SOCKET_VARIABLE) {
            Some(socket) if !socket.is_empty() => Self::connect_to(socket),
            _ => Err(Error::NoSocket),
        }
    }

    /// As [`Client::connect`], with the socket's path given. The page is looked for in the same directory.
    ///
    /// ```
    /// use cosid_client::{Client, Error};
    ///
    /// let error = Client::connect_to("/nowhere/agent.sock").unwrap_err();
    /// assert!(matches!(error, Error::AgentAbsent { .. }));
    /// ```
    ///
    /// # Errors
    /// [`Error::AgentAbsent`] at once if nobody listens there; [`Error::BadSocketPath`], [`Error::AgentSlow`],
    /// [`Error::Connection`], [`Error::BadAnswer`], [`Error::Agent`].
    pub fn connect_to(socket: impl AsRef<Path>) -> Result<Self, Error> {
        let agent = Agent::at(socket.as_ref())?;
        agent.lease(DEFAULT_TIMEOUT)?;
        Ok(Self { agent: Arc::new(agent), named: Arc::default(), timeout: DEFAULT_TIMEOUT })
    }

    /// The same client, whose calls and generators wait at most `timeout`.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The generator of that name; 1 to 64 letters, digits, `.`, `_` or `-`. The agent is asked for it the first
    /// time; from then on it is known and this never blocks.
    ///
    /// While the agent has no slot yet, or is just being started again, this waits for at most the client's
    /// timeout. Blocks.
    ///
    /// # Errors
    /// [`Error::BadName`], [`Error::Exhausted`], [`Error::Refused`], [`Error::Blocked`], [`Error::TooManyGenerators`],
    /// [`Error::OtherLayout`] where the name has another layout than the pool,
    /// [`Error::Closing`], [`Error::PageMismatch`], [`Error::Page`] and those of [`Client::connect_to`] at once;
    /// [`Error::NoSlot`], [`Error::AgentAbsent`], [`Error::AgentSlow`] or [`Error::Connection`] when the time is
    /// over.
    pub fn generator(&self, name: &str) -> Result<Generator, Error> {
        self.find(name, None)
    }

    /// [`Client::generator`] with a layout of the generator's own: with room for each slot of the pool, and in all no more
    /// bits than the pool's. It has it on the pages to come too. Blocks as that does.
    ///
    /// Give a name the same layout in all programs of the pool and for ever: an agent refuses another one for a name that it
    /// knows, but agents do not know of each other, and IDs of two layouts of one name can be equal.
    ///
    /// ```no_run
    /// use cosid_client::{Client, Layout};
    ///
    /// let seconds = Layout::builder().timestamp_bits(31).sequence_bits(22).unit_ms(1000).build()?;
    /// let parcels = Client::connect()?.generator_in("parcels", &seconds)?;
    /// assert_eq!(parcels.layout(), seconds);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Client::generator`]; [`Error::OtherLayout`] where the name has another one, or the agent is of a version
    /// that gives out the pool's alone; [`Error::UnfitLayout`].
    pub fn generator_in(&self, name: &str, layout: &Layout) -> Result<Generator, Error> {
        self.find(name, Some(*layout))
    }

    fn find(&self, name: &str, layout: Option<Layout>) -> Result<Generator, Error> {
        check_name(name)?;
        let known = |list: &[Arc<Named>]| list.iter().find(|named| named.name() == name).cloned();
        if let Some(named) = known(&self.named.load()) {
            named.check_layout(layout)?;
            return Ok(Generator::new(named, self.timeout));
        }
        let mut named = Arc::new(Named::find(self.agent.clone(), name, layout, self.timeout)?);
        self.named.rcu(|list| {
            let mut list = Vec::clone(list);
            // Another thread may have asked for the same name in the meantime: then all go with its.
            match known(&list) {
                Some(first) => named = first,
                None => list.push(named.clone()),
            }
            list
        });
        named.check_layout(layout)?;
        Ok(Generator::new(named, self.timeout))
    }

    /// What the agent holds now, for apps that show it. One round trip. Blocks for at most the client's timeout.
    ///
    /// # Errors
    /// Those of [`Client::connect_to`].
    pub fn lease(&self) -> Result<Lease, Error> {
        self.agent.lease(self.timeout)
    }

    /// The agent's socket, as an absolute path.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.agent.socket
    }
}

/// The agent: what is asked of it, and its page.
#[derive(Debug)]
pub(crate) struct Agent {
    socket: PathBuf,
    directory: PathBuf,
    /// The page that was told of last, mapped once for all generators.
    page: ArcSwapOption<Page>,
}

impl Agent {
    fn at(socket: &Path) -> Result<Self, Error> {
        let bad = |why| Error::BadSocketPath { path: socket.to_path_buf(), why };
        // Absolute, because the process may change its directory before it asks again.
        let absolute = path::absolute(socket).map_err(|_| bad("it is empty or has no absolute form"))?;
        let directory = absolute.parent().ok_or_else(|| bad("it names no file"))?.to_path_buf();
        Ok(Self { socket: absolute, directory, page: ArcSwapOption::empty() })
    }

    fn lease(&self, timeout: Duration) -> Result<Lease, Error> {
        let answer = http::request(&self.socket, "GET", "/v1/lease", timeout)?;
        if answer.status != 200 {
            return Err(refusal(answer.status, &answer.body, ""));
        }
        Lease::read(&answer.body).map_err(|error| self.bad_answer(&error))
    }

    /// Asks once where the generator lives. The name has been checked: it needs no escaping.
    pub(crate) fn place(
        &self,
        name: &str,
        layout: Option<&Layout>,
        timeout: Duration,
    ) -> Result<Placement, Error> {
        let query = layout.map(query).unwrap_or_default();
        let path = format!("/v1/generators/{name}{query}");
        let answer = http::request(&self.socket, "PUT", &path, timeout)?;
        if answer.status != 200 {
            return Err(refusal(answer.status, &answer.body, name));
        }
        let placement: Placement =
            serde_json::from_slice(&answer.body).map_err(|error| self.bad_answer(&error))?;
        if placement.generator != name {
            let what = format!("it is about the generator `{}` instead of `{name}`", placement.generator);
            return Err(Error::BadAnswer { socket: self.socket.clone(), what });
        }
        Ok(placement)
    }

    /// The generator's place on its page, which is mapped if it is not yet; `layout` is what was asked for.
    pub(crate) fn issuer(
        &self,
        placement: &Placement,
        layout: Option<&Layout>,
    ) -> Result<cosid_id::Generator, Error> {
        let page = self.page(placement)?;
        if page.cell(&placement.generator) != Some(placement.cell) {
            let what = format!("its cell {} is not `{}`'s", placement.cell, placement.generator);
            return Err(Error::PageMismatch { page: page.path().to_path_buf(), what });
        }
        let issuer = cosid_id::Generator::new(page, placement.cell).map_err(Error::Page)?;
        check_layout(&issuer, &placement.generator, layout)?;
        Ok(issuer)
    }

    fn page(&self, placement: &Placement) -> Result<Arc<Page>, Error> {
        let path = self.page_path(&placement.page)?;
        let mut known = self.page.load_full();
        if let Some(page) = known.as_ref().filter(|page| page.path() == path && fits(page, placement)) {
            return Ok(page.clone());
        }
        let opened = Arc::new(Page::open(&path).map_err(Error::Page)?);
        if !fits(&opened, placement) {
            let header = opened.header();
            let what = format!(
                "it is for slot {} with fence {} of `{}`, the agent spoke of slot {} with fence {} of `{}`",
                header.slot, header.fence, header.pool, placement.slot, placement.fence, placement.pool
            );
            return Err(Error::PageMismatch { page: path, what });
        }
        loop {
            let seen = self.page.compare_and_swap(&known, Some(opened.clone()));
            let same = |seen: &Arc<Page>| seen.path() == path && fits(seen, placement);
            if let Some(first) = seen.as_ref().filter(|seen| same(seen)) {
                return Ok(first.clone());
            }
            if seen.as_ref().map(Arc::as_ptr) == known.as_ref().map(Arc::as_ptr) {
                return Ok(opened);
            }
            known = seen.clone();
        }
    }

    /// Only a bare file name: an answer must not lead to a file elsewhere.
    fn page_path(&self, name: &str) -> Result<PathBuf, Error> {
        let mut components = Path::new(name).components();
        let bare = match (components.next(), components.next()) {
            (Some(Component::Normal(first)), None) => first == name && !name.contains('\0'),
            _ => false,
        };
        if !bare {
            let what = format!("`{}` is no bare file name of a page", excerpt(name));
            return Err(Error::BadAnswer { socket: self.socket.clone(), what });
        }
        Ok(self.directory.join(name))
    }

    fn bad_answer(&self, error: &serde_json::Error) -> Error {
        Error::BadAnswer { socket: self.socket.clone(), what: format!("its JSON cannot be read ({error})") }
    }
}

fn fits(page: &Page, placement: &Placement) -> bool {
    let header = page.header();
    header.pool == placement.pool && header.slot == placement.slot && header.fence == placement.fence
}

/// Whether a generator has the layout asked for: the pool's, if none was.
pub(crate) fn check_layout(
    issuer: &cosid_id::Generator,
    name: &str,
    asked: Option<&Layout>,
) -> Result<(), Error> {
    let (has, asked) = (issuer.layout(), asked.unwrap_or(&issuer.page().header().layout));
    if has == asked {
        return Ok(());
    }
    let message = format!("its page has {has:?} for it, and {asked:?} was asked for");
    Err(Error::OtherLayout { name: name.to_owned(), message })
}

/// The part of a request that says the layout: its fields as they are in JSON, numbers and words that need no escaping.
fn query(layout: &Layout) -> String {
    let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(layout) else { return String::new() };
    let parts = fields.iter().map(|(field, value)| match value.as_str() {
        Some(word) => format!("{field}={word}"),
        None => format!("{field}={value}"),
    });
    format!("?{}", parts.collect::<Vec<_>>().join("&"))
}

/// The rule of a page's cells, kept here too so that a bad name is said before anything is asked.
fn check_name(name: &str) -> Result<(), Error> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.is_empty() || name.len() > MAX_NAME_LEN || !name.bytes().all(allowed) {
        return Err(Error::BadName { name: excerpt(name), max: MAX_NAME_LEN });
    }
    Ok(())
}

/// The start of a text from outside, short enough for a log line.
fn excerpt(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use cosid_id::{Header, Layout, PageOwner};

    use super::*;

    #[test]
    fn a_name_is_good_exactly_if_a_page_takes_it() {
        let dir = tempfile::tempdir().unwrap();
        let header =
            Header { pool: "shop/orders".into(), slot: 1, fence: 1, floor: 1, layout: Layout::MILLISECOND };
        let mut owner = PageOwner::create(dir.path().join("page"), &header).unwrap();
        let longest = "n".repeat(MAX_NAME_LEN);
        let too_long = "n".repeat(MAX_NAME_LEN + 1);
        for name in ["orders", "a", "A.b_c-9", ".", "..", &longest] {
            assert!(check_name(name).is_ok() && owner.assign(name).is_ok(), "{name}");
        }
        for name in ["", " ", "a b", "a/b", "a%20", "a?b", "\u{e9}", "a\r\nb", "a\0", &too_long] {
            assert!(check_name(name).is_err() && owner.assign(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_page_is_a_bare_file_name_next_to_the_socket() {
        let agent = Agent::at(Path::new("/run/cosid/agent.sock")).unwrap();
        assert_eq!(agent.page_path("3-7.page").unwrap(), Path::new("/run/cosid/3-7.page"));
        for name in ["", ".", "..", "/etc/passwd", "../3-7.page", "a/b", "a/", "./a", "a\0b"] {
            let error = agent.page_path(name).unwrap_err();
            assert!(matches!(error, Error::BadAnswer { .. }), "{name:?}: {error}");
        }
    }

    #[test]
    fn a_socket_path_is_made_absolute() {
        let agent = Agent::at(Path::new("agent.sock")).unwrap();
        assert!(agent.socket.is_absolute() && agent.directory.is_absolute());
        for path in ["", "/"] {
            let error = Agent::at(Path::new(path)).unwrap_err();
            assert!(matches!(error, Error::BadSocketPath { .. }), "{path:?}: {error}");
        }
    }
}
