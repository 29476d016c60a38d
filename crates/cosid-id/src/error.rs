//! What can be wrong with a layout, an ID, a page or a static slot.
//!
//! Why an ID could not be made *now* is another question, asked millions of times a second, and has a small
//! type of its own: [`NextError`](crate::NextError).

use std::io;
use std::path::PathBuf;

use crate::layout::Layout;

/// What is wrong with a layout, an ID, a name, a page or a static slot, and what to do about it.
///
/// A variant for each thing a caller would treat differently.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A layout that cannot work.
    #[error("the layout cannot work: {why}; give the pool another layout")]
    BadLayout {
        /// What does not fit, with the numbers.
        why: String,
    },
    /// The slot does not fit into the layout's slot bits.
    #[error("slot {slot} does not fit: the layout has slots 0 to {max}; use a wider layout or a lower slot")]
    SlotTooLarge {
        /// The slot given.
        slot: u32,
        /// The largest slot of the layout.
        max: u32,
    },
    /// The sequence does not fit into the layout's sequence bits.
    #[error("sequence {sequence} does not fit: the layout has sequences 0 to {max}")]
    SequenceTooLarge {
        /// The sequence given.
        sequence: u32,
        /// The largest sequence of the layout.
        max: u32,
    },
    /// A timestamp before the layout's epoch.
    #[error(
        "timestamp {timestamp} is before the layout's epoch {epoch} (Unix ms); use a layout with an earlier epoch"
    )]
    BeforeEpoch {
        /// Unix ms.
        timestamp: u64,
        /// Unix ms.
        epoch: u64,
    },
    /// A timestamp past the last one that the layout's timestamp bits hold.
    #[error(
        "timestamp {timestamp} is past the layout's last one {last} (Unix ms); use a layout with a later epoch or more bits"
    )]
    PastLayout {
        /// Unix ms.
        timestamp: u64,
        /// Unix ms, the last millisecond that the layout can say.
        last: u64,
    },
    /// A text that is no decimal ID.
    #[error("`{text}` is no ID: {why}; an ID is a decimal number from 0 to 9223372036854775807")]
    BadId {
        /// The text given, cut to a length that fits a log line.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A way to write IDs that cannot work.
    #[error("IDs cannot be written so: {why}; choose another form")]
    BadForm {
        /// What does not fit.
        why: String,
    },
    /// A time zone that the system's database does not have.
    #[cfg(feature = "zones")]
    #[error("no time zone `{name}` ({why}); check the name, install tzdata, or use Zone::east_minutes")]
    UnknownZone {
        /// The name given, cut to a length that fits a log line.
        name: String,
        /// What the database said.
        why: String,
    },
    /// A text that is not what the form writes for any ID.
    #[error(
        "`{text}` is no ID in this form ({form}): {why}; read it with the form and layout that it was written with"
    )]
    BadText {
        /// The text given, cut to a length that fits a log line.
        text: String,
        /// The form without its prefix and suffix.
        form: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// An ID with more bits than the layout.
    #[error("ID {id} has more than the layout's {bits} bits: it was made with another layout")]
    IdTooWide {
        /// The ID given.
        id: u64,
        /// The sum of the layout's bits.
        bits: u8,
    },
    /// A pool's name that a page cannot hold.
    #[error("the pool's name has {len} bytes: a page holds 1 to {max}; use a shorter name")]
    BadPoolName {
        /// Bytes of the name given.
        len: usize,
        /// Bytes that a page holds.
        max: usize,
    },
    /// A generator's name that a page cannot hold.
    #[error(
        "`{name}` is no generator name: 1 to {max} letters, digits, `.`, `_` or `-`; rename the generator"
    )]
    BadGeneratorName {
        /// The name given, cut to a length that fits a log line.
        name: String,
        /// Bytes that a cell holds.
        max: usize,
    },
    /// All cells of the page belong to generators already.
    #[error(
        "all {cells} cells of the page are taken: `{name}` gets none; use fewer generator names in this pod"
    )]
    CellsUsedUp {
        /// The generator that got none.
        name: String,
        /// Cells of a page.
        cells: usize,
    },
    /// The generator has IDs of one layout already, and another one was asked for.
    #[error(
        "the generator `{name}` has another layout: {has:?}, and {asked:?} was asked for; ask for the one that it has, or take \
         another name, since IDs of both could be equal"
    )]
    OtherLayout {
        /// The generator.
        name: String,
        /// The layout that it has.
        has: Layout,
        /// The layout asked for.
        asked: Layout,
    },
    /// A layout that the pool's slots, or its width, have no room for.
    #[error(
        "the generator `{name}` can't have {layout:?}: the pool's slots need {slot_bits} bits, and its IDs have {bits} at most; \
         give the layout such bits, or take a pool of its own"
    )]
    UnfitLayout {
        /// The generator.
        name: String,
        /// The layout asked for.
        layout: Layout,
        /// Bits that the pool's slots need.
        slot_bits: u8,
        /// Bits that IDs of the pool have at most.
        bits: u8,
    },
    /// No generator lives in that cell.
    #[error("cell {cell} of page {} belongs to no generator; ask the agent for the cell of your generator", path.display())]
    NoSuchCell {
        /// The cell asked for.
        cell: usize,
        /// The page.
        path: PathBuf,
    },
    /// The cell holds a layout that this version does not know.
    #[error("cell {cell} of page {} has a layout this program does not know; update the program", path.display())]
    NewerCell {
        /// The cell asked for.
        cell: usize,
        /// The page.
        path: PathBuf,
    },
    /// The page was closed: its slot is lost or released, and it never comes back to life.
    #[error("page {} is closed: its slot is gone; go on with the page of the next slot", path.display())]
    PageClosed {
        /// The page.
        path: PathBuf,
    },
    /// There is a file at the page's path already. It is left alone: somebody may have it mapped.
    #[error("{} exists already and is left alone; open it to resume, or give the new binding its own file name", path.display())]
    PageExists {
        /// The page.
        path: PathBuf,
    },
    /// The disk (or the quota, or the file size limit) has no room for the page.
    #[error("no room for page {} ({bytes} bytes): {source}; free space there or raise the volume's size limit", path.display())]
    DiskFull {
        /// The page.
        path: PathBuf,
        /// Bytes of a page.
        bytes: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused an operation on the page's file.
    #[error("cannot {action} page {}: {source}; check that the path exists and that this user may write there", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The page.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is something else.
    #[error("{} is no window page; check the path", path.display())]
    NotAPage {
        /// The file.
        path: PathBuf,
    },
    /// The page has a version that this program does not know.
    #[error("page {} has version {version}, this program knows up to {newest}; update the program", path.display())]
    NewerPage {
        /// The page.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// The newest version known here.
        newest: u32,
    },
    /// The file is shorter than a page.
    #[error("page {} is cut short: {len} of {expected} bytes; remove it and restart the agent", path.display())]
    Truncated {
        /// The page.
        path: PathBuf,
        /// Bytes of the file.
        len: u64,
        /// Bytes of a page.
        expected: u64,
    },
    /// The file is longer than a page.
    #[error("page {} has {len} bytes instead of {expected}; remove it and restart the agent", path.display())]
    WrongSize {
        /// The page.
        path: PathBuf,
        /// Bytes of the file.
        len: u64,
        /// Bytes of a page.
        expected: u64,
    },
    /// The header contradicts itself.
    #[error("page {} is damaged ({what}); remove it and restart the agent", path.display())]
    CorruptPage {
        /// The page.
        path: PathBuf,
        /// The field that is wrong.
        what: String,
    },
    /// A host name without a number at its end, where a slot is to be taken from it.
    #[error(
        "host `{host}` has no slot in its name: a StatefulSet's pods are called NAME-NUMBER; give the slot by number"
    )]
    NoOrdinal {
        /// The name given, cut to a length that fits a log line.
        host: String,
    },
    /// Another process has the static slot's state file. (A forked worker has what its parent had, until it ends.)
    #[error(
        "state file {} is in use by another process ({process}) or by workers that it forked: end it, or give this one \
         another slot and file", path.display()
    )]
    StateInUse {
        /// The state file.
        path: PathBuf,
        /// The other's process id, as it wrote it.
        process: String,
    },
    /// The state file cannot be read; it is left as it is.
    #[error(
        "state file {} is damaged ({what}) and was left alone: its slot may have issued IDs up to 10 s from when it was \
         last written; put a copy back that is not older, or move it away and start with a not-before that is later \
         than every ID of the slot", path.display()
    )]
    CorruptState {
        /// The state file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The state file is of a version that this program does not know.
    #[error("state file {} has version {version}, this program knows up to {newest}; update the program", path.display())]
    NewerState {
        /// The state file.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// The newest version known here.
        newest: u32,
    },
    /// The state file was written for another slot, pool or layout; it is left as it is.
    #[error(
        "state file {} is that of {found}; asked for is {expected}: give each slot its own file, and a pool one layout \
         for ever", path.display()
    )]
    StateOfAnother {
        /// The state file.
        path: PathBuf,
        /// Whose it is.
        found: String,
        /// Who wants it.
        expected: String,
    },
    /// The state file or its lock was changed by somebody else while a slot was open. Its ceiling stays where it is.
    #[error(
        "state file {} is no longer this process's ({what}): its slot is not extended, and IDs stop at the ceiling; see \
         that one process has it, and start anew", path.display()
    )]
    StateChanged {
        /// The state file.
        path: PathBuf,
        /// What happened to it.
        what: &'static str,
    },
    /// The system refused an operation on the state file: a full or read-only disk, most likely. Until a later try
    /// works, IDs stop at the ceiling that was last written.
    #[error(
        "cannot {action} state file {}: {source}; its directory has to exist, with room and this user's right to write", path.display()
    )]
    StateIo {
        /// What was tried, as a verb.
        action: &'static str,
        /// The state file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The thread that extends a static slot could not be started.
    #[error(
        "cannot start the thread that extends the slot: {source}; raise this process's limit of threads or memory"
    )]
    StateThread {
        /// What the system said.
        source: io::Error,
    },
    /// A static slot belongs to the process that opened it; a forked child has its generators only.
    #[error(
        "this static slot was opened by process {opened_by}, of which this one is a fork: name all generators before \
         forking, and leave the closing to that process"
    )]
    NotTheOpener {
        /// The process that opened the slot.
        opened_by: u32,
    },
}

/// The start of a text from outside, short enough for a log line.
pub(crate) fn excerpt(text: &str) -> String {
    text.chars().take(80).collect()
}
