//! One at a time, without a lock.

use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// A seat that one thread of a process takes to ask the agent, while the others wait.
///
/// Not a mutex: a child that was forked while a thread of its parent held one would wait for it for ever. The
/// seat knows whose it is, and a seat that another process sits on, in this copy of the memory, is free.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    /// The process, 0 while nobody sits here.
    taken_by: AtomicU32,
}

/// Leaves the seat when dropped.
#[derive(Debug)]
pub(crate) struct Seated<'a>(&'a Seat);

impl Seat {
    /// Takes the seat if it is free. Never blocks.
    pub(crate) fn take(&self) -> Option<Seated<'_>> {
        let me = process::id();
        let seen = self.taken_by.load(Ordering::Acquire);
        if seen == me {
            return None;
        }
        let swapped = self.taken_by.compare_exchange(seen, me, Ordering::AcqRel, Ordering::Acquire);
        swapped.is_ok().then_some(Seated(self))
    }

    /// Leaves it for who was seated and forgot the guard, which can't go to another thread.
    #[cfg(feature = "async")]
    pub(crate) fn leave(&self) {
        self.taken_by.store(0, Ordering::Release);
    }
}

impl Drop for Seated<'_> {
    fn drop(&mut self) {
        self.0.taken_by.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sits_until_it_leaves() {
        let seat = Seat::default();
        let seated = seat.take().unwrap();
        assert!(seat.take().is_none());
        drop(seated);
        assert!(seat.take().is_some());
    }

    #[test]
    fn a_seat_that_a_forked_child_inherits_taken_is_free_to_it() {
        let seat = Seat { taken_by: AtomicU32::new(process::id() + 1) };
        assert!(seat.take().is_some());
    }
}
