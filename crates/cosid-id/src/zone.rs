//! Time zones: from Unix time to local time and back.

use crate::date::Local;
use crate::error::Error;

/// A time zone for the forms that show a time.
///
/// A fixed distance from UTC always works. Zones by name, with daylight saving time, come with the feature `zones`,
/// from the system's time zone database.
///
/// ```
/// use cosid_id::{Form, Layout, Zone};
///
/// let china = Zone::east_minutes(8 * 60)?;
/// let form = Form::friendly(Layout::MILLISECOND, china)?;
/// assert_eq!(form.format("295913926632165376".parse()?)?, "20220320133617924-5-0");
/// # Ok::<(), cosid_id::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Zone(Kind);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Kind {
    /// Seconds east of UTC.
    Fixed(i32),
    #[cfg(feature = "zones")]
    Named(jiff::tz::TimeZone),
}

impl Zone {
    /// Coordinated Universal Time.
    pub const UTC: Self = Self(Kind::Fixed(0));

    /// So many minutes east of Greenwich, negative to the west; up to 18 hours.
    ///
    /// # Errors
    /// [`Error::BadForm`] for more than that.
    pub fn east_minutes(minutes: i16) -> Result<Self, Error> {
        if minutes.unsigned_abs() > 18 * 60 {
            return Err(Error::BadForm {
                why: format!("a time zone {minutes} minutes from UTC, at most 1080"),
            });
        }
        Ok(Self(Kind::Fixed(i32::from(minutes) * 60)))
    }

    /// The zone of this name in the system's time zone database, such as `Asia/Shanghai`. Blocks for file I/O only.
    ///
    /// ```no_run
    /// use cosid_id::Zone;
    ///
    /// let berlin = Zone::named("Europe/Berlin")?;
    /// # Ok::<(), cosid_id::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::UnknownZone`].
    #[cfg(feature = "zones")]
    pub fn named(name: &str) -> Result<Self, Error> {
        let shown = crate::error::excerpt(name);
        // What the database says has the whole name in it.
        if shown.len() < name.len() {
            return Err(Error::UnknownZone { name: shown, why: "it is longer than any name there".into() });
        }
        let found = jiff::tz::TimeZone::get(name);
        found
            .map(|zone| Self(Kind::Named(zone)))
            .map_err(|error| Error::UnknownZone { name: shown, why: error.to_string() })
    }

    /// The local time at a Unix time (of a year below 9999).
    pub(crate) fn local(&self, unix_ms: u64) -> Local {
        let unix_ms = i64::try_from(unix_ms).unwrap_or(i64::MAX);
        let seconds = match &self.0 {
            Kind::Fixed(seconds) => *seconds,
            #[cfg(feature = "zones")]
            Kind::Named(zone) => seconds_at(zone, unix_ms),
        };
        Local::from_ms(unix_ms.saturating_add(i64::from(seconds) * 1_000))
    }

    /// The Unix time at which the zone's clocks show a local time.
    ///
    /// # Errors
    /// What is wrong with it: no clock ever shows it, or shows it twice.
    pub(crate) fn unix_ms(&self, local: Local) -> Result<u64, &'static str> {
        let local_ms = local.to_ms().ok_or("there is no such date or time")?;
        let seconds = match &self.0 {
            Kind::Fixed(seconds) => *seconds,
            #[cfg(feature = "zones")]
            Kind::Named(zone) => seconds_at_local(zone, local_ms)?,
        };
        u64::try_from(local_ms - i64::from(seconds) * 1_000).map_err(|_| "its time is before 1970")
    }
}

#[cfg(feature = "zones")]
fn seconds_at(zone: &jiff::tz::TimeZone, unix_ms: i64) -> i32 {
    let then = jiff::Timestamp::from_millisecond(unix_ms).unwrap_or(jiff::Timestamp::MAX);
    zone.to_offset(then).seconds()
}

#[cfg(feature = "zones")]
fn seconds_at_local(zone: &jiff::tz::TimeZone, local_ms: i64) -> Result<i32, &'static str> {
    use jiff::tz::{AmbiguousOffset, Offset};
    let as_if_utc =
        jiff::Timestamp::from_millisecond(local_ms).map_err(|_| "there is no such date or time")?;
    match zone.to_ambiguous_timestamp(Offset::UTC.to_datetime(as_if_utc)).offset() {
        AmbiguousOffset::Unambiguous { offset } => Ok(offset.seconds()),
        AmbiguousOffset::Gap { .. } => {
            Err("its time was left out in this time zone when clocks went forward")
        }
        // Two IDs an hour apart have this text; to take one would be to guess.
        AmbiguousOffset::Fold { .. } => Err(
            "its time came twice in this time zone when clocks went back: read it with Zone::east_minutes",
        ),
    }
}
