//! IDs in JSON and the like: as numbers, or on request as strings.

use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::id::Id;

/// As a number. JavaScript loses those above 2^53: see [`serde_string`](crate::serde_string).
impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.get())
    }
}

/// From a number, or from a decimal string where the format says which it is.
impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_any(EitherWay)
        } else {
            deserializer.deserialize_u64(EitherWay)
        }
    }
}

struct EitherWay;

impl Visitor<'_> for EitherWay {
    type Value = Id;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an ID, as a number from 0 to 9223372036854775807 or as a string of its decimal digits")
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Id, E> {
        Id::try_from(value).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Id, E> {
        Id::try_from(value).map_err(E::custom)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Id, E> {
        text.parse().map_err(E::custom)
    }
}

/// IDs as strings, for JavaScript, whose numbers hold 53 bits: `#[serde(with = "cosid_id::serde_string")]`.
///
/// For a field that is an [`Id`]; strings and numbers are read.
///
/// ```
/// use cosid_id::Id;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Order {
///     #[serde(with = "cosid_id::serde_string")]
///     id: Id,
/// }
///
/// let order: Order = serde_json::from_str(r#"{"id":295913926632165376}"#)?;
/// assert_eq!(serde_json::to_string(&order)?, r#"{"id":"295913926632165376"}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
pub mod serde_string {
    use super::{Deserializer, EitherWay, Id, Serializer};

    /// Writes a string of decimal digits.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(id: &Id, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(id)
    }

    /// Reads a string of decimal digits, or a number where the format says which it is.
    ///
    /// # Errors
    /// The deserializer's, and for what is no ID.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Id, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_any(EitherWay)
        } else {
            deserializer.deserialize_str(EitherWay)
        }
    }
}
