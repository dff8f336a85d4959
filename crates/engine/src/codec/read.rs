//! Primitive fields, incoming. Nothing is allocated before its bytes are seen.

use super::FactError;
use crate::message::{Attachment, Attr};
use crate::time::Ms;

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

    pub(super) fn number(&mut self) -> Result<u64, FactError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            // The tenth byte has room for one bit.
            if shift == 63 && byte > 1 {
                return Err(FactError::BadField("number"));
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(FactError::BadField("number"))
    }

    pub(super) fn small(&mut self, field: &'static str) -> Result<u32, FactError> {
        u32::try_from(self.number()?).map_err(|_| FactError::BadField(field))
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
