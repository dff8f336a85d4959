//! Bytes in JSON, which need not be text.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// The bytes in base64, or `None` if they are text.
pub(crate) fn base64_unless_text(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes);
    text.is_err().then(|| BASE64_STANDARD.encode(bytes))
}

/// The bytes as text, with U+FFFD in place of each part that is no UTF-8.
pub(crate) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The bytes as text, if they are.
pub(crate) fn text_of(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}
