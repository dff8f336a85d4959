//! Extent: an empty file whose name says which segments a log must have.
//!
//! Why a crash cannot make it false: "What must be there" in `docs/log-format.md`.

use std::{
    io::{self, ErrorKind},
    sync::{Arc, Mutex, PoisonError},
};

use crate::error::OfStorage as _;
use crate::{
    Position, Result, SegmentNumber, Storage, error::is_full, run::list_runs, segment::segment_name,
};

/// Content of an extent. Each part only rises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// It is needed, and all behind it.
    pub(crate) oldest: SegmentNumber,
    pub(crate) newest: SegmentNumber,
    /// The log was durable up to here.
    pub(crate) durable: Position,
}

/// Why runs are damage in a directory without a segment.
pub(crate) const NO_SEGMENT: &str =
    "there are runs, but no segment of the log that says which parts of them are in force";

/// Why something that must be there is not: the file, and what is wrong.
pub(crate) type Missing = (String, String);

impl Extent {
    pub(crate) fn name(self) -> String {
        let Self {
            oldest,
            newest,
            durable,
        } = self;
        format!("extent-{:010}-{:010}-{:020}", oldest.0, newest.0, durable.0)
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix("extent-")?.split('-');
        let mut number = |digits: usize| -> Option<u64> {
            let part = parts.next()?;
            let right = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
            right.then(|| part.parse().ok()).flatten()
        };
        let segment = |number: u64| u32::try_from(number).ok().map(SegmentNumber);
        let found = Self {
            oldest: segment(number(10)?)?,
            newest: segment(number(10)?)?,
            durable: Position(number(20)?),
        };
        parts.next().is_none().then_some(found)
    }

    /// Merges all extents of a directory; returns the result and their names.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub(crate) fn find(storage: &dyn Storage) -> Result<(Option<Self>, Vec<String>)> {
        let mut names = storage.list().or_io("list", "the log's directory")?;
        names.retain(|name| Self::parse(name).is_some());
        let all = names.iter().filter_map(|name| Self::parse(name));
        Ok((all.reduce(Self::and), names))
    }

    fn and(self, other: Self) -> Self {
        Self {
            oldest: self.oldest.max(other.oldest),
            newest: self.newest.max(other.newest),
            durable: self.durable.max(other.durable),
        }
    }

    /// Describes the loss in a directory whose oldest segment is `first`.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub(crate) fn missing(
        found: Option<Self>,
        storage: &dyn Storage,
        first: Option<SegmentNumber>,
    ) -> Result<Option<Missing>> {
        let gone = |number, why: &str| Ok(Some((segment_name(number), why.to_owned())));
        match (found, first) {
            (Some(extent), None) if extent.newest > extent.oldest => {
                let last = segment_name(extent.newest);
                gone(
                    extent.oldest,
                    &format!("the file is missing, and all behind it up to {last}"),
                )
            }
            (Some(extent), None) => gone(extent.oldest, "the file is missing"),
            (Some(extent), Some(first)) if first > extent.oldest => {
                gone(extent.oldest, "the file is missing")
            }
            (Some(_), Some(_)) | (None, Some(_)) => Ok(None),
            (None, None) => {
                let runs = list_runs(storage)?;
                let first = runs.first().map(ToString::to_string);
                Ok(first.map(|run| (run, NO_SEGMENT.to_owned())))
            }
        }
    }
}

/// Keeps the extent of an open log.
pub(crate) struct Extents {
    storage: Arc<dyn Storage>,
    now: Mutex<Option<Extent>>,
}

impl Extents {
    /// Of a directory that has those called `names`, which are made one.
    ///
    /// # Errors
    /// The storage failed.
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        found: Option<Extent>,
        names: Vec<String>,
    ) -> io::Result<Self> {
        let mut now = None;
        for name in names {
            // There is one, but after a crash that lost half of a rename.
            match found.filter(|found| now.is_none() && found.name() == name) {
                Some(found) => now = Some(found),
                None => storage.remove(&name)?,
            }
        }
        Ok(Self {
            storage,
            now: Mutex::new(now),
        })
    }

    /// Says more from now on. Durable with the next sync of the directory. For want of room, or of
    /// a descriptor, it may also say nothing until the next call.
    ///
    /// # Errors
    /// The storage failed.
    pub(crate) fn report(&self, more: Extent) -> io::Result<()> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let next = now.map_or(more, |now| now.and(more));
        let renamed = match *now {
            Some(now) if now == next => return Ok(()),
            Some(now) => self.storage.rename(&now.name(), &next.name()),
            None => Err(ErrorKind::NotFound.into()),
        };
        *now = match renamed {
            Ok(()) => Some(next),
            // The first one, or somebody took it away.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.storage.create(&next.name()).ok().map(|_| next)
            }
            Err(error) if is_full(&error) => {
                // One that says that more is needed than there is must not stay.
                if let Some(now) = *now {
                    self.storage.remove(&now.name())?;
                }
                None
            }
            Err(error) => return Err(error),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_back_and_others_do_not() {
        let extent = Extent {
            oldest: SegmentNumber(3),
            newest: SegmentNumber(u32::MAX),
            durable: Position(u64::MAX),
        };
        assert_eq!(Extent::parse(&extent.name()), Some(extent));
        let name = extent.name();
        for other in [
            "extent-",
            "extent-1-2-3",
            "extent-0000000001-0000000002",
            &name.replace('3', "x"),
            &format!("{name}-1"),
            &format!("{name}.damaged"),
            "extent-9999999999-0000000002-00000000000000000003",
        ] {
            assert_eq!(Extent::parse(other), None, "{other}");
        }
    }
}
