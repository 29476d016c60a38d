//! What a history is made of, and what was seen in it.

use cosid_lease::Millis;

/// What happens next. Numbers are taken modulo what there is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// A host does all that is due, and the network is at its best.
    Go(usize),
    /// Time passes until a host wants to do something.
    Wake(usize),
    /// A host does what is due; its requests go out, and it closes no window yet.
    Ask(usize),
    /// A request arrives at the store, for the first time or again.
    Arrive(usize),
    /// A request's answer arrives, for the first time or again.
    Answer(usize),
    /// A host waits no longer for an answer.
    GiveUp(usize),
    /// Time passes, ms.
    Pass(Millis),
    /// The store's clock jumps, ms.
    Jump(i64),
    /// A timestamp is issued from an open window, this far above its last one.
    Issue(usize, Millis),
    /// A host is told to stop.
    Stop(usize),
    /// A host closes the window that it is to close.
    Close(usize),
    /// A host's agent is killed and started again; its window can still be issued from.
    Crash(usize, Kept),
    /// A host that has ended is started again.
    Start(usize),
}

/// What an agent finds of its state after a restart.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kept {
    Nothing,
    AsAcquired,
    AsRenewed,
}

/// How often what happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) acquired: u32,
    pub(crate) taken_over: u32,
    pub(crate) released: u32,
    pub(crate) lost: u32,
    pub(crate) resumed: u32,
    pub(crate) late: u32,
    pub(crate) repeated: u32,
    pub(crate) issued: u32,
}

impl Seen {
    pub(crate) fn add(&mut self, other: &Self) {
        self.acquired += other.acquired;
        self.taken_over += other.taken_over;
        self.released += other.released;
        self.lost += other.lost;
        self.resumed += other.resumed;
        self.late += other.late;
        self.repeated += other.repeated;
        self.issued += other.issued;
    }
}
