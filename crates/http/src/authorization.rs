//! The `Authorization` of a request. Fuzzed as it stands (`fuzz/fuzz_targets/authorization.rs`).

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Authorization {
    Nothing,
    /// A name, without a colon, and a password. What is no login is one that
    /// fits nothing: both are empty.
    Basic(Vec<u8>, Vec<u8>),
    Bearer(Vec<u8>),
}

impl Authorization {
    /// Reads the header, if there is one.
    pub(crate) fn read(value: Option<&str>) -> Self {
        let Some(value) = value else {
            return Self::Nothing;
        };
        let (scheme, code) = value.split_once(' ').unwrap_or((value, ""));
        if scheme.eq_ignore_ascii_case("bearer") {
            return Self::Bearer(code.trim().into());
        }
        let mut name = match scheme.eq_ignore_ascii_case("basic") {
            true => BASE64_STANDARD.decode(code.trim()).unwrap_or_default(),
            false => Vec::new(),
        };
        let colon = name.iter().position(|byte| *byte == b':');
        let password = colon.map(|colon| name.split_off(colon).split_off(1));
        Self::Basic(name, password.unwrap_or_default())
    }
}
