//! Values of messages' attributes.

/// Prefix of a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ValueKind {
    String,
    Number,
    Binary,
}

/// An attribute's value: the type with its label, and the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Value<'a> {
    pub(crate) data_type: &'a str,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Value<'a> {
    /// Kind of the value. One of an unknown type is bytes.
    pub(crate) fn kind(self) -> ValueKind {
        kind_of(self.data_type).unwrap_or(ValueKind::Binary)
    }

    /// As it is stored: the type, a zero, the bytes.
    pub(crate) fn stored(self) -> Box<[u8]> {
        [self.data_type.as_bytes(), &[0], self.bytes]
            .concat()
            .into()
    }

    /// From what is stored.
    pub(crate) fn of_stored(stored: &'a [u8]) -> Option<Self> {
        let end = stored.iter().position(|&byte| byte == 0)?;
        Some(Self {
            data_type: std::str::from_utf8(&stored[..end]).ok()?,
            bytes: &stored[end + 1..],
        })
    }
}

/// Kind of a type; `None`: there is no such type.
pub(crate) fn kind_of(data_type: &str) -> Option<ValueKind> {
    let (kind, label) = match data_type.split_once('.') {
        Some((kind, label)) => (kind, Some(label)),
        None => (data_type, None),
    };
    if label == Some("") {
        return None;
    }
    match kind {
        "String" => Some(ValueKind::String),
        "Number" => Some(ValueKind::Number),
        "Binary" => Some(ValueKind::Binary),
        _ => None,
    }
}
