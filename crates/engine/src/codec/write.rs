//! Primitive fields, outgoing.

use quintet_types::{Attachment, Attr, Coded, Ms, varint};

pub(super) struct Writer<'a>(pub(super) &'a mut Vec<u8>);

impl Writer<'_> {
    pub(super) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(super) fn coded(&mut self, value: impl Coded) {
        self.byte(value.byte());
    }

    pub(super) fn flag(&mut self, flag: bool) {
        self.0.push(u8::from(flag));
    }

    pub(super) fn number(&mut self, value: u64) {
        varint::put(self.0, value);
    }

    /// Zigzag, so that small negative numbers are short.
    pub(super) fn signed(&mut self, value: i64) {
        self.number(((value << 1) ^ (value >> 63)) as u64);
    }

    /// 0 for none, else the time plus one.
    pub(super) fn time(&mut self, time: Option<Ms>) {
        self.number(time.map_or(0, |time| time.0.saturating_add(1)));
    }

    pub(super) fn exactly(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn attrs(&mut self, attrs: &[Attr]) {
        self.number(attrs.len() as u64);
        for (name, value) in attrs {
            self.bytes(name);
            self.bytes(value);
        }
    }

    pub(super) fn attachments(&mut self, attachments: &[Attachment]) {
        self.number(attachments.len() as u64);
        for attachment in attachments {
            self.bytes(&attachment.name);
            self.number(attachment.len);
            self.0.extend_from_slice(&attachment.md5);
        }
    }
}
