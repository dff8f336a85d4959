//! Bytes in JSON, which need not be text.

pub(crate) use quintet_client::shown::base64_unless_text;

/// The bytes as text, with U+FFFD in place of each part that is no UTF-8.
pub(crate) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The bytes as text, if they are.
pub(crate) fn text_of(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}
