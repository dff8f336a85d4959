//! Primitive fields, incoming. Nothing is allocated before its bytes are seen.

use super::FactError;
use quintet_types::{Attachment, Attr, Coded, Ms, QueueId, RunId, SegmentRef, varint};

/// The value that this byte stands for.
pub(super) fn of_byte<C: Coded>(byte: u8) -> Result<C, FactError> {
    C::of(byte).ok_or(FactError::BadField(C::FIELD))
}

/// The queue of this number. A table has a list of its pages: a damaged number must not make it
/// huge.
pub(super) fn queue_of(number: u64, field: &'static str) -> Result<QueueId, FactError> {
    let number = u32::try_from(number).ok().filter(|&it| it < 1 << 28);
    number.map(QueueId).ok_or(FactError::BadField(field))
}

pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn byte(&mut self) -> Result<u8, FactError> {
        let (&first, rest) = self.0.split_first().ok_or(FactError::Short)?;
        self.0 = rest;
        Ok(first)
    }

    pub(super) fn flag(&mut self) -> Result<bool, FactError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(FactError::BadField("flag")),
        }
    }

    pub(super) fn coded<C: Coded>(&mut self) -> Result<C, FactError> {
        of_byte(self.byte()?)
    }

    pub(super) fn number(&mut self) -> Result<u64, FactError> {
        let seen = self.0.len();
        match varint::take(&mut self.0) {
            Some(value) => Ok(value),
            // A number has ten bytes at most: with more there, it was a bad one.
            None if seen >= 10 => Err(FactError::BadField("number")),
            None => Err(FactError::Short),
        }
    }

    pub(super) fn small(&mut self, field: &'static str) -> Result<u32, FactError> {
        u32::try_from(self.number()?).map_err(|_| FactError::BadField(field))
    }

    pub(super) fn queue(&mut self) -> Result<QueueId, FactError> {
        queue_of(self.number()?, "queue")
    }

    /// A run. One of a number so great that a reference to it would be to another is none.
    pub(super) fn run(&mut self) -> Result<RunId, FactError> {
        let run = RunId(self.small("run")?);
        let is_one = SegmentRef::of_run(run).run() == Some(run);
        is_one.then_some(run).ok_or(FactError::BadField("run"))
    }

    pub(super) fn signed(&mut self) -> Result<i64, FactError> {
        let value = self.number()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub(super) fn time(&mut self) -> Result<Option<Ms>, FactError> {
        Ok(self.number()?.checked_sub(1).map(Ms))
    }

    pub(super) fn exactly(&mut self, len: usize) -> Result<&'a [u8], FactError> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(FactError::Short)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], FactError> {
        let bytes = self.exactly(N)?;
        bytes.try_into().map_err(|_| FactError::Short)
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], FactError> {
        let len = usize::try_from(self.number()?).map_err(|_| FactError::Short)?;
        self.exactly(len)
    }

    pub(super) fn attrs(&mut self) -> Result<Vec<Attr>, FactError> {
        let mut attrs = Vec::new();
        for _ in 0..self.number()? {
            attrs.push((self.bytes()?.into(), self.bytes()?.into()));
        }
        Ok(attrs)
    }

    pub(super) fn attachments(&mut self) -> Result<Vec<Attachment>, FactError> {
        let mut attachments = Vec::new();
        for _ in 0..self.number()? {
            let name = self.bytes()?.into();
            let len = self.number()?;
            let mut md5 = [0; 16];
            md5.copy_from_slice(self.exactly(16)?);
            attachments.push(Attachment { name, len, md5 });
        }
        Ok(attachments)
    }
}
