//! Users' credentials, and the ones that clients show for them: any bytes.

#![no_main]

use quintet_auth::{Password, Secret, TokenId};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    if let Ok(password) = Password::read(&text) {
        assert_eq!(Password::read(password.as_str()), Ok(password));
    }
    if let Ok(id) = TokenId::read(&text) {
        assert_eq!(TokenId::read(&id.show()), Ok(id));
    }
    // A token's text is never what it is kept as.
    if let Some(id) = TokenId::of(input) {
        assert!(TokenId::read(&text).is_err(), "{id:?}");
    }
    if let Ok(secret) = Secret::read(input) {
        assert!(!secret.fits(&[input, b"x"].concat()) && !secret.fits(b""));
    }
});
