//! Files of IDs, as runs: an ID, how many follow it at what distance, and under which slot and fence the program that
//! took them believed to be.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

/// The bytes of a run in a file.
pub const LENGTH: usize = 40;

/// IDs that one call gave. With `count` 0 there are none: it only says that the program was there at `at_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// When the program had them, see [`now_ns`](super::now_ns).
    pub at_ns: u64,
    /// The first ID.
    pub first: u64,
    /// From an ID to the next.
    pub step: u32,
    /// How many.
    pub count: u32,
    /// Slot and fence of its generator before it asked.
    pub before: Binding,
    /// The same after it had them. The two differ only where the generator moved meanwhile.
    pub after: Binding,
}

/// A slot under a fence: one holder's time with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Binding {
    /// The slot.
    pub slot: u32,
    /// The fence.
    pub fence: u32,
}

impl Run {
    /// Appends it to a file. In one write, so that a program that is killed leaves whole runs.
    ///
    /// # Errors
    /// Those of the file.
    pub fn write_to(&self, file: &mut impl Write) -> io::Result<()> {
        let long = [self.at_ns, self.first].map(u64::to_le_bytes);
        let (before, after) = (self.before, self.after);
        let short = [self.step, self.count, before.slot, before.fence, after.slot, after.fence];
        let mut bytes = Vec::with_capacity(LENGTH);
        bytes.extend(long.as_flattened());
        bytes.extend(short.map(u32::to_le_bytes).as_flattened());
        file.write_all(&bytes)
    }

    fn read(bytes: &[u8; LENGTH]) -> Self {
        let (words, _) = bytes.as_chunks::<4>();
        let short = |word: usize| u32::from_le_bytes(words[word]);
        let long = |word: usize| u64::from(short(word)) | u64::from(short(word + 1)) << 32;
        let binding = |word: usize| Binding { slot: short(word), fence: short(word + 1) };
        Self {
            at_ns: long(0),
            first: long(2),
            step: short(4),
            count: short(5),
            before: binding(6),
            after: binding(8),
        }
    }

    /// The last ID; `None` where there are none, or they run out of numbers.
    #[must_use]
    pub fn last(&self) -> Option<u64> {
        let further = u64::from(self.count.checked_sub(1)?).checked_mul(u64::from(self.step))?;
        self.first.checked_add(further)
    }
}

/// All runs of a file's content. What a kill cut off at its end was never whole, and is left out.
pub fn read(content: &[u8]) -> impl Iterator<Item = Run> {
    content.as_chunks::<LENGTH>().0.iter().map(Run::read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_read_as_it_was_written_and_a_torn_one_is_left_out() {
        let run = Run {
            at_ns: 1 << 40,
            first: u64::MAX - 7,
            step: 2,
            count: 3,
            before: Binding { slot: 4, fence: 5 },
            after: Binding { slot: 6, fence: 7 },
        };
        let mut file = Vec::new();
        run.write_to(&mut file).unwrap();
        run.write_to(&mut file).unwrap();
        assert_eq!(file.len(), 2 * LENGTH);
        assert_eq!(read(&file[..file.len() - 1]).collect::<Vec<_>>(), [run]);
        assert_eq!(run.last(), Some(u64::MAX - 3));
        assert_eq!(Run { count: 0, ..run }.last(), None);
        assert_eq!(Run { count: 9, ..run }.last(), None, "out of numbers");
    }
}
