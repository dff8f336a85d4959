//! Named values of a queue, for its operators: the engine keeps them and reads none.

use crate::message::AttrChange;

/// Bytes of names and values that a queue's own tags may have together.
pub const TAGS_BYTES_MAX: usize = 16 << 10;

/// Changes to named values, and so the values themselves, as changes of none. Sorted by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tags(Vec<AttrChange>);

impl Tags {
    /// The user that paused a queue by command, and when, as "MS USER". Not shown among tags.
    pub const PAUSED_BY: &[u8] = b"quintet:paused";

    /// Sets a value; `None` takes it away from what these are laid over.
    pub fn set(&mut self, name: &[u8], value: Option<&[u8]>) {
        let value = value.map(Into::into);
        match self.0.binary_search_by(|(own, _)| (**own).cmp(name)) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (name.into(), value)),
        }
    }

    /// The value of the tag `name`; `None`: there is no such tag.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let at = self.0.binary_search_by(|(own, _)| (**own).cmp(name)).ok()?;
        self.0[at].1.as_deref()
    }

    /// All names that have a value, sorted, with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let named = self.0.iter();
        named.filter_map(|(name, value)| Some((&**name, value.as_deref()?)))
    }

    /// True if there is neither a value nor a change.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of all names and values.
    pub fn bytes(&self) -> usize {
        let len = |value: &Option<Box<[u8]>>| value.as_ref().map_or(0, |value| value.len());
        self.0
            .iter()
            .map(|(name, value)| name.len() + len(value))
            .sum()
    }

    /// These changes done to `below`.
    #[must_use]
    pub fn over(&self, below: &Tags) -> Tags {
        let mut all = below.clone();
        for (name, value) in &self.0 {
            all.set(name, value.as_deref());
        }
        all.0.retain(|(_, value)| value.is_some());
        all
    }
}

impl<'a> FromIterator<(&'a [u8], &'a [u8])> for Tags {
    fn from_iter<I: IntoIterator<Item = (&'a [u8], &'a [u8])>>(values: I) -> Self {
        let mut tags = Tags::default();
        for (name, value) in values {
            tags.set(name, Some(value));
        }
        tags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_set_and_take_away() {
        let mut tags = Tags::from_iter([(&b"b"[..], &b"1"[..]), (b"a", b"")]);
        assert_eq!(tags.get(b"a"), Some(&b""[..]));
        let mut change = Tags::default();
        change.set(b"b", None);
        change.set(b"c", Some(b"3"));
        change.set(b"z", None);
        tags = change.over(&tags);
        let all: Vec<_> = tags.iter().collect();
        assert_eq!(all, [(&b"a"[..], &b""[..]), (b"c", b"3")]);
        assert_eq!(tags.bytes(), 3);
        assert_eq!(tags.get(b"b"), None);
    }
}
