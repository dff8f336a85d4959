//! The header by which clients of HTTP log in: any text.

#![no_main]

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

#[path = "../../crates/http/src/authorization.rs"]
mod authorization;

use authorization::Authorization;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Ok(value) = std::str::from_utf8(input)
        && let Authorization::Basic(name, _) = Authorization::read(Some(value))
    {
        assert!(!name.contains(&b':'));
    }
    // Any name without a colon and any password are read as they were written.
    let cut = input.iter().position(|byte| *byte == 0);
    let (name, password) = input.split_at(cut.unwrap_or(input.len()));
    if name.contains(&b':') {
        return;
    }
    let both = [name, b":", password].concat();
    let value = format!("Basic {}", BASE64_STANDARD.encode(both));
    let read = Authorization::read(Some(&value));
    assert!(read == Authorization::Basic(name.to_vec(), password.to_vec()));
});
