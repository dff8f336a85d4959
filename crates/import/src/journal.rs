//! The bytes of a journal. Numbers are little-endian; a number of a read has 4 bytes, a length too.
//!
//! | byte | what follows | what it says |
//! |---|---|---|
//! | 0 | length, expiry (4 bytes, s; 0: never), body | an item, as the oldest Kestrels wrote it |
//! | 1 | | the first item is gone |
//! | 2 | length, when it was added and expires (8 bytes each, ms; 0: never), body | an item |
//! | 3 | | the first item is read |
//! | 4 | number | the last number that was given to a read |
//! | 5 | number | that read was aborted: its item is the first again |
//! | 6 | number | that read was closed: its item is gone |
//! | 7 | number, then as 2 | an item that is read with this number, by a 3 behind it |
//! | 8 | number, then as 2 | that read was closed, and this item put |
//! | 9 | number | the first item is read with this number |

/// An item, without its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    pub added_ms: Option<u64>,
    pub expires_ms: Option<u64>,
    /// The read it was in when the journal was written anew.
    pub read: Option<u32>,
    /// Where its body is, and how long.
    pub at: u64,
    pub bytes: usize,
}

/// One operation of Kestrel's journal of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    Add(Item),
    Remove,
    Open(Option<u32>),
    Last(u32),
    Abort(u32),
    Close(u32),
    Continue(u32, Item),
}

/// The records of a file, and where it is not what it should be: that is the last item.
pub fn records(file: &[u8]) -> impl Iterator<Item = Result<Record, (u64, &'static str)>> + '_ {
    let mut at = 0;
    let mut over = false;
    std::iter::from_fn(move || {
        if over || at == file.len() {
            return None;
        }
        let mut from = Bytes { file, at };
        let record = from.record();
        let before = std::mem::replace(&mut at, from.at);
        over = record.is_err();
        Some(record.map_err(|why| (before as u64, why)))
    })
}

const CUT: &str = "the file ends inside a record";
const STRANGE: &str = "this is no record of Kestrel";

struct Bytes<'a> {
    file: &'a [u8],
    at: usize,
}

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let end = self.at + N;
        let bytes = self.file.get(self.at..end).ok_or(CUT)?;
        self.at = end;
        bytes.try_into().map_err(|_| CUT)
    }

    fn number(&mut self) -> Result<u32, &'static str> {
        self.take().map(u32::from_le_bytes)
    }

    fn record(&mut self) -> Result<Record, &'static str> {
        let [code] = self.take()?;
        Ok(match code {
            0 => {
                let len = self.len(4)?;
                let expires = u64::from(self.number()?);
                Record::Add(self.item(len, None, expires * 1000)?)
            }
            1 => Record::Remove,
            2 => Record::Add(self.dated()?),
            3 => Record::Open(None),
            4 => Record::Last(self.number()?),
            5 => Record::Abort(self.number()?),
            6 => Record::Close(self.number()?),
            7 => {
                let read = Some(self.number()?).filter(|read| *read != 0);
                Record::Add(Item {
                    read,
                    ..self.dated()?
                })
            }
            8 => Record::Continue(self.number()?, self.dated()?),
            9 => Record::Open(Some(self.number()?).filter(|read| *read != 0)),
            _ => return Err(STRANGE),
        })
    }

    /// The length of a body behind so many bytes.
    fn len(&mut self, before: usize) -> Result<usize, &'static str> {
        let len = self.number()?;
        if i32::try_from(len).is_err() {
            return Err(STRANGE);
        }
        (len as usize).checked_sub(before).ok_or(STRANGE)
    }

    fn dated(&mut self) -> Result<Item, &'static str> {
        let len = self.len(16)?;
        let added = self.take().map(u64::from_le_bytes)?;
        let expires = self.take().map(u64::from_le_bytes)?;
        self.item(len, Some(added), expires)
    }

    fn item(
        &mut self,
        bytes: usize,
        added_ms: Option<u64>,
        expires_ms: u64,
    ) -> Result<Item, &'static str> {
        let at = self.at;
        let end = at.checked_add(bytes).filter(|end| *end <= self.file.len());
        self.at = end.ok_or(CUT)?;
        Ok(Item {
            added_ms,
            expires_ms: Some(expires_ms).filter(|expires| *expires > 0),
            read: None,
            at: at as u64,
            bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(code: u8, read: Option<u32>, body: &[u8]) -> Vec<u8> {
        let mut all = vec![code];
        all.extend(read.into_iter().flat_map(u32::to_le_bytes));
        all.extend(u32::try_from(body.len() + 16).unwrap().to_le_bytes());
        all.extend(1000_u64.to_le_bytes());
        all.extend(2000_u64.to_le_bytes());
        all.extend(body);
        all
    }

    fn journal() -> Vec<u8> {
        let mut all = vec![0];
        all.extend(7_u32.to_le_bytes());
        all.extend(3_u32.to_le_bytes());
        all.extend(b"old");
        all.extend(item(2, None, b"hello"));
        all.extend([1, 3]);
        for code in [4, 5, 6, 9] {
            all.push(code);
            all.extend(77_u32.to_le_bytes());
        }
        all.extend(item(7, Some(78), b""));
        all.extend(item(8, Some(79), b"next"));
        all
    }

    #[test]
    fn every_record_is_read() {
        let bytes = journal();
        let all: Vec<Record> = records(&bytes).map(Result::unwrap).collect();
        let old = Item {
            added_ms: None,
            expires_ms: Some(3000),
            read: None,
            at: 9,
            bytes: 3,
        };
        let hello = Item {
            added_ms: Some(1000),
            expires_ms: Some(2000),
            at: 33,
            bytes: 5,
            ..old
        };
        assert_eq!(&bytes[33..38], b"hello");
        let end = bytes.len() as u64;
        let open = Item {
            read: Some(78),
            at: end - 29,
            bytes: 0,
            ..hello
        };
        let next = Item {
            at: end - 4,
            bytes: 4,
            ..hello
        };
        assert_eq!(
            all,
            [
                Record::Add(old),
                Record::Add(hello),
                Record::Remove,
                Record::Open(None),
                Record::Last(77),
                Record::Abort(77),
                Record::Close(77),
                Record::Open(Some(77)),
                Record::Add(open),
                Record::Continue(79, next),
            ]
        );
    }

    #[test]
    fn a_file_cut_anywhere_gives_whole_records_and_says_where_it_ends() {
        let bytes = journal();
        let all: Vec<Record> = records(&bytes).map(Result::unwrap).collect();
        let mut whole = 0;
        for len in 0..bytes.len() {
            let mut cut: Vec<_> = records(&bytes[..len]).collect();
            match cut.last() {
                Some(Err((at, why))) => {
                    assert!(*at < len as u64 && *why == CUT, "{len}");
                    cut.pop();
                }
                _ => whole += 1,
            }
            let good: Vec<Record> = cut.into_iter().map(Result::unwrap).collect();
            assert!(all.starts_with(&good), "{len}");
        }
        assert_eq!(whole, 10, "the beginning, and the ends of all but the last");
    }

    #[test]
    fn nonsense_is_named_and_no_panic() {
        let bytes = journal();
        for at in 0..bytes.len() {
            for flip in [1, 0x40, 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] ^= flip;
                records(&bytes).for_each(drop);
            }
        }
        for (bytes, why) in [
            (&[10][..], STRANGE),
            (&[2, 15, 0, 0, 0], STRANGE),
            (&[2, 255, 255, 255, 255], STRANGE),
            (&[2, 255, 255, 255, 127], CUT),
        ] {
            assert_eq!(records(bytes).last(), Some(Err((0, why))), "{bytes:?}");
        }
    }
}
