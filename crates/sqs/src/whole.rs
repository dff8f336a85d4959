//! Pieces that requests are made of, read with bounds: what a client writes
//! decides neither how deep nor how large they become in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::fault::Fault;

/// Entries of a list or a map that are kept; the rest is counted alone. More
/// than any of them may have.
pub(crate) const KEPT_MAX: usize = 1000;

/// A whole number, given as one or as its digits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Whole {
    Number(i64),
    /// Text that is no number, to be shown.
    Text(String),
}

/// The number of a parameter, if it is given.
///
/// # Errors
/// It is none between these.
pub(crate) fn within(
    supplied: &Option<Whole>,
    parameter: &str,
    (least, most): (i64, i64),
    reason: &str,
) -> Result<Option<u64>, Fault> {
    let Some(supplied) = supplied else {
        return Ok(None);
    };
    if let Whole::Number(number) = supplied
        && (least..=most).contains(number)
        && let Ok(number) = u64::try_from(*number)
    {
        return Ok(Some(number));
    }
    Err(Fault::value(supplied, parameter, reason))
}

impl fmt::Display for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Whole::Number(number) => number.fmt(f),
            Whole::Text(text) => text.fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read;
        impl Visitor<'_> for Read {
            type Value = Whole;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Whole, E> {
                Ok(Whole::Number(number))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Whole, E> {
                Ok(match i64::try_from(number) {
                    Ok(number) => Whole::Number(number),
                    Err(_) => Whole::Text(number.to_string()),
                })
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Whole, E> {
                Ok(match text.parse() {
                    Ok(number) => Whole::Number(number),
                    Err(_) => Whole::Text(text.to_owned()),
                })
            }
        }
        from.deserialize_any(Read)
    }
}

/// The error of bytes that are not in base64.
pub(crate) const NOT_BASE64: &str = "not base64";

/// Bytes, written as base64.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Blob(pub(crate) Vec<u8>);

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let bytes = STANDARD
            .decode(text)
            .map_err(|_| D::Error::custom(NOT_BASE64))?;
        Ok(Blob(bytes))
    }
}

/// A list or a map of which [`KEPT_MAX`] entries at most are kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Bounded<C> {
    pub(crate) kept: C,
    /// How many there were.
    pub(crate) count: usize,
}

pub(crate) type List<T> = Bounded<Vec<T>>;

/// Of a name that is there twice the last counts.
pub(crate) type Named<T> = Bounded<BTreeMap<String, T>>;

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Read<T> {
            type Value = List<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_unit<E: Error>(self) -> Result<List<T>, E> {
                Ok(List::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<List<T>, A::Error> {
                let mut list = List::default();
                while list.count < KEPT_MAX
                    && let Some(entry) = seq.next_element()?
                {
                    list.kept.push(entry);
                    list.count += 1;
                }
                while list.count >= KEPT_MAX && seq.next_element::<IgnoredAny>()?.is_some() {
                    list.count += 1;
                }
                Ok(list)
            }
        }
        from.deserialize_any(Read(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Read<T> {
            type Value = Named<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_unit<E: Error>(self) -> Result<Named<T>, E> {
                Ok(Named::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named<T>, A::Error> {
                let mut named = Named::default();
                while let Some(name) = map.next_key::<String>()? {
                    named.count += 1;
                    if named.count > KEPT_MAX {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    // A value that is null is absent.
                    if let Some(value) = map.next_value::<Option<T>>()? {
                        named.kept.insert(name, value);
                    }
                }
                Ok(named)
            }
        }
        from.deserialize_any(Read(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_as_digits_too() {
        let read = |text| serde_json::from_str::<Whole>(text);
        assert_eq!(read("7").expect("read"), Whole::Number(7));
        assert_eq!(read("\"-7\"").expect("read"), Whole::Number(-7));
        assert_eq!(read("\"x\"").expect("read"), Whole::Text("x".to_owned()));
        assert!(read("7.5").is_err() && read("[]").is_err() && read("true").is_err());
        let beyond = read("18446744073709551615").expect("read");
        assert_eq!(beyond.to_string().len(), 20);
        assert!(within(&Some(beyond), "x", (0, 9), "").is_err());
    }

    #[test]
    fn lists_are_counted_and_not_kept_beyond_the_bound() {
        let many = format!("[{}]", vec!["1"; 100_000].join(","));
        let list: List<Whole> = serde_json::from_str(&many).expect("a list");
        assert_eq!((list.kept.len(), list.count), (KEPT_MAX, 100_000));
        let none: List<Whole> = serde_json::from_str("null").expect("none");
        assert_eq!(none.count, 0);
        let many: Vec<String> = (0..5000).map(|n| format!("\"{n}\":null")).collect();
        let many = format!("{{{}}}", many.join(","));
        let named: Named<Whole> = serde_json::from_str(&many).expect("a map");
        assert_eq!((named.kept.len(), named.count), (0, 5000));
    }
}
