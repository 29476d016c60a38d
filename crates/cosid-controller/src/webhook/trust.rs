//! Which certificate may be shown: the newest that API servers trust by now. Pure.

use std::collections::HashMap;

use cosid_lease::Millis;

use super::certificates::{Generation, Generations};

/// How long after a registration has an authority in it the API servers know it, ms: each follows it by a watch of its own.
/// Short-lived certificates don't have so much time.
const KNOWN_AFTER: Millis = 30_000;

/// Since when the registration has had which authorities.
#[derive(Debug, Default)]
pub struct Trust(HashMap<String, Millis>);

impl Trust {
    /// The registration's `caBundle` as seen at `now` (ms of a clock that does not go back).
    pub fn observe(&mut self, bundle: &str, generations: &Generations, now: Millis) {
        let all = std::iter::once(&generations.newest).chain(&generations.previous);
        let seen = all.filter(|generation| bundle.contains(generation.authority.trim()));
        self.0 = seen
            .map(|generation| {
                let since = self.0.get(&generation.authority).copied().unwrap_or(now);
                (generation.authority.clone(), since)
            })
            .collect();
    }

    /// The one to show at `now` (as above; `time`: Unix ms), and how many ms later that may be another one.
    #[must_use]
    pub fn choose<'a>(
        &self,
        generations: &'a Generations,
        now: Millis,
        time: Millis,
    ) -> (&'a Generation, Option<Millis>) {
        let newest = &generations.newest;
        let lifetime = newest.expires().saturating_sub(newest.made());
        let known_after = KNOWN_AFTER.min(lifetime / 10);
        let left = self.0.get(&newest.authority).map(|since| (since + known_after).saturating_sub(now));
        if left == Some(0) {
            return (newest, None);
        }
        let previous = generations.previous.as_ref();
        match previous
            .filter(|previous| self.0.contains_key(&previous.authority) && time < previous.expires())
        {
            Some(previous) => (previous, Some(left.unwrap_or(previous.expires() - time))),
            // Nothing better: what nobody trusts yet fails no worse than nothing.
            None => (newest, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = 1_800_000_000_000;
    const LIFETIME: Millis = 1_000_000;

    #[test]
    fn a_new_certificate_is_shown_once_everybody_trusts_it_and_the_old_one_until_then() {
        let names = ["127.0.0.1".to_owned()];
        let renewed = |found, now| Generations::renewed(found, &names, now, LIFETIME).unwrap();
        let first = renewed(None, NOW);
        let mut trust = Trust::default();
        // The very first: there is no other.
        assert_eq!(trust.choose(&first, 0, NOW), (&first.newest, None));
        trust.observe(&first.bundle(NOW), &first, 1_000);
        let due = first.newest.due();
        let second = renewed(Some(&first), due);
        // Made, but the registration does not have it yet.
        trust.observe(&first.bundle(due), &second, 50_000);
        let until_its_end = Some(first.newest.expires() - due);
        assert_eq!(trust.choose(&second, 50_000, due), (&first.newest, until_its_end));
        // It has; not every API server may know.
        trust.observe(&second.bundle(due), &second, 51_000);
        assert_eq!(trust.choose(&second, 52_000, due), (&first.newest, Some(29_000)));
        trust.observe(&second.bundle(due), &second, 60_000);
        assert_eq!(trust.choose(&second, 81_000, due), (&second.newest, None));
        // An end is an end.
        assert_eq!(trust.choose(&second, 52_000, first.newest.expires()), (&second.newest, None));
    }

    #[test]
    fn a_registration_that_was_wiped_begins_anew() {
        let names = ["127.0.0.1".to_owned()];
        let first = Generations::renewed(None, &names, NOW, LIFETIME).unwrap();
        let second = Generations::renewed(Some(&first), &names, first.newest.due(), LIFETIME).unwrap();
        let (due, bundle) = (first.newest.due(), second.bundle(first.newest.due()));
        let mut trust = Trust::default();
        trust.observe(&bundle, &second, 0);
        trust.observe("", &second, 40_000);
        assert_eq!(trust.choose(&second, 40_000, due).0, &second.newest);
        trust.observe(&bundle, &second, 41_000);
        assert_eq!(trust.choose(&second, 42_000, due).0, &first.newest);
        assert_eq!(trust.choose(&second, 71_000, due).0, &second.newest);
    }
}
