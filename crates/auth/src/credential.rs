//! Passwords, tokens and secrets: made, kept so that they cannot be read, and
//! compared in constant time.

use std::fmt;
use std::sync::Arc;

use argon2::password_hash::{PasswordHash, PasswordVerifier as _, SaltString};
use argon2::{Algorithm, Argon2, ParamsBuilder, PasswordHasher as _};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use quintet_types::{hex, unhex};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// Every token begins so, for those who look for secrets in files.
const TOKEN_PREFIX: &str = "qt_";
/// Bytes of a password at most; a longer one fits nothing.
const PASSWORD_MAX: usize = 1024;
/// Memory and passes that checking a password may take: KiB, and how often.
const MEMORY_KIB_MAX: u32 = 1 << 20;
const PASSES_MAX: u32 = 100;

/// Why a line of a users file has no valid credential.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CredentialError {
    /// Not a hash in PHC form.
    #[error("takes a hash as `quintet passwd` prints it, beginning with $argon2id$")]
    NoHash,
    /// It asks for more work than any login should.
    #[error("asks for more than 1GiB of memory or 100 passes")]
    TooDear,
    /// Not a token's line.
    #[error("takes the hash that `quintet token` prints: 64 hexadecimal digits")]
    NoToken,
    /// An empty or overlong password or secret.
    #[error("takes 1 to 1024 bytes")]
    Length,
}

/// A password's argon2id hash.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Arc<str>);

/// Not for logs.
impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(***)")
    }
}

impl Password {
    /// Reads a hash (PHC form).
    ///
    /// # Errors
    /// It is none, of another kind, or asks for too much.
    pub fn read(text: &str) -> Result<Self, CredentialError> {
        let hash = PasswordHash::new(text).map_err(|_| CredentialError::NoHash)?;
        let kind = Algorithm::try_from(hash.algorithm);
        if kind != Ok(Algorithm::Argon2id) || hash.hash.is_none() || hash.salt.is_none() {
            return Err(CredentialError::NoHash);
        }
        let params = argon2::Params::try_from(&hash).map_err(|_| CredentialError::NoHash)?;
        if params.m_cost() > MEMORY_KIB_MAX || params.t_cost() > PASSES_MAX {
            return Err(CredentialError::TooDear);
        }
        Ok(Self(text.into()))
    }

    /// The hash of a password with this salt, at the library's usual cost
    /// (19 MiB, two passes).
    ///
    /// # Errors
    /// [`CredentialError::Length`].
    pub fn of(password: &[u8], salt: [u8; 16]) -> Result<Self, CredentialError> {
        Self::of_cost(
            password,
            salt,
            argon2::Params::DEFAULT_M_COST,
            argon2::Params::DEFAULT_T_COST,
        )
    }

    /// The same with memory in KiB and passes given.
    ///
    /// # Errors
    /// [`CredentialError::Length`]; [`CredentialError::TooDear`] if they are no
    /// possible ones.
    pub fn of_cost(
        password: &[u8],
        salt: [u8; 16],
        memory_kib: u32,
        passes: u32,
    ) -> Result<Self, CredentialError> {
        if password.is_empty() || password.len() > PASSWORD_MAX {
            return Err(CredentialError::Length);
        }
        let params = ParamsBuilder::new()
            .m_cost(memory_kib)
            .t_cost(passes)
            .build();
        let params = params.map_err(|_| CredentialError::TooDear)?;
        let salt = SaltString::encode_b64(&salt).map_err(|_| CredentialError::NoHash)?;
        let argon = Argon2::new(Algorithm::Argon2id, argon2::Version::V0x13, params);
        let hash = argon.hash_password(password, &salt);
        let hash = hash.map_err(|_| CredentialError::TooDear)?.to_string();
        Ok(Self(hash.into()))
    }

    /// The hash, as it is configured.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is of this password. Takes as long, and as much memory, as
    /// the hash says.
    pub fn fits(&self, password: &[u8]) -> bool {
        let Ok(hash) = PasswordHash::new(&self.0) else {
            return false;
        };
        let short = &password[..password.len().min(PASSWORD_MAX)];
        let fits = Argon2::default().verify_password(short, &hash).is_ok();
        fits && password.len() <= PASSWORD_MAX
    }
}

/// Stored form of a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenId([u8; 32]);

/// Not for logs either, though nobody gets in with it.
impl fmt::Debug for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenId(***)")
    }
}

impl TokenId {
    /// Of a token as its owner has it. `None`: it does not look like one.
    pub fn of(token: &[u8]) -> Option<Self> {
        let text = token.strip_prefix(TOKEN_PREFIX.as_bytes())?;
        let mut random = [0; 32];
        let read = BASE64_URL_SAFE_NO_PAD.decode_slice(text, &mut random);
        (read == Ok(32)).then(|| Self(Sha256::digest(token).into()))
    }

    /// Reads 64 hexadecimal digits.
    ///
    /// # Errors
    /// [`CredentialError::NoToken`].
    pub fn read(text: &str) -> Result<Self, CredentialError> {
        let id = unhex(text).and_then(|bytes| bytes.try_into().ok());
        id.map(Self).ok_or(CredentialError::NoToken)
    }

    /// As [`TokenId::read`] takes it.
    pub fn show(&self) -> String {
        hex(&self.0)
    }

    pub(crate) fn same(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// A token that counts until its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    pub id: TokenId,
    /// Nobody gets in with it from then on, ms of the wall clock; `u64::MAX`:
    /// always.
    pub until_ms: u64,
}

/// A token that was just made.
pub struct NewToken {
    /// For its owner; kept nowhere.
    pub text: String,
    pub id: TokenId,
}

impl NewToken {
    /// Of so many random bits.
    pub fn of(random: [u8; 32]) -> Self {
        let text = format!("{TOKEN_PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(random));
        let id = TokenId(Sha256::digest(text.as_bytes()).into());
        Self { text, id }
    }
}

/// A secret that is kept as it is, for protocols that sign with it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Secret(Arc<[u8]>);

/// Not for logs.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

impl Secret {
    /// The bytes of a file, without a line's end behind them.
    ///
    /// # Errors
    /// [`CredentialError::Length`].
    pub fn read(bytes: &[u8]) -> Result<Self, CredentialError> {
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        if bytes.is_empty() || bytes.len() > PASSWORD_MAX {
            return Err(CredentialError::Length);
        }
        Ok(Self(bytes.into()))
    }

    /// Whether this is it. Takes as long whatever differs.
    pub fn fits(&self, supplied: &[u8]) -> bool {
        let (own, supplied) = (Sha256::digest(&self.0), Sha256::digest(supplied));
        own.as_slice().ct_eq(supplied.as_slice()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_fits_its_hash_alone() {
        let hash = Password::of_cost(b"hush", [7; 16], 8, 1).expect("a hash");
        assert!(hash.as_str().starts_with("$argon2id$"), "{}", hash.as_str());
        let read = Password::read(hash.as_str()).expect("reads back");
        for wrong in [&b""[..], b"Hush", b"hush ", b"\xff\xfe", &[b'h'; 5000]] {
            assert!(!read.fits(wrong), "{wrong:?}");
        }
        assert!(read.fits(b"hush"));
        let again = Password::of_cost(b"hush", [8; 16], 8, 1).expect("a hash");
        assert_ne!(again, hash);
        assert_eq!(format!("{hash:?}"), "Password(***)");
    }

    #[test]
    fn a_wrong_or_too_expensive_hash_is_refused() {
        let good = Password::of_cost(b"x", [0; 16], 8, 1).expect("a hash");
        let other_kind = good.as_str().replace("argon2id", "argon2i");
        for text in ["", "hush", "$argon2id$", "$2y$10$abc", &other_kind] {
            assert_eq!(Password::read(text), Err(CredentialError::NoHash), "{text}");
        }
        let dear = good.as_str().replace("m=8", "m=4000000");
        assert_eq!(Password::read(&dear), Err(CredentialError::TooDear));
        for length in [0, PASSWORD_MAX + 1] {
            let made = Password::of_cost(&vec![b'a'; length], [0; 16], 8, 1);
            assert_eq!(made, Err(CredentialError::Length));
        }
        // What is cut off is not ignored.
        let long = Password::of_cost(&[b'a'; PASSWORD_MAX], [0; 16], 8, 1).expect("a hash");
        assert!(long.fits(&[b'a'; PASSWORD_MAX]) && !long.fits(&[b'a'; PASSWORD_MAX + 1]));
    }

    #[test]
    fn a_token_is_known_by_its_id() {
        let made = NewToken::of([9; 32]);
        assert_eq!(made.text.len(), 46);
        let id = TokenId::of(made.text.as_bytes()).expect("a token");
        assert!(id.same(&made.id));
        assert_eq!(TokenId::read(&id.show()), Ok(id));
        for wrong in ["", "qt_", "qt_!", &made.text[3..], &made.text[..45]] {
            assert_eq!(TokenId::of(wrong.as_bytes()), None, "{wrong}");
        }
        let sign = "+1".repeat(32);
        for wrong in ["", "12", &"g".repeat(64), &sign] {
            assert_eq!(
                TokenId::read(wrong),
                Err(CredentialError::NoToken),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_secret_is_a_file_s_line() {
        let secret = Secret::read(b"s3cret\r\n").expect("a secret");
        assert!(secret.fits(b"s3cret") && !secret.fits(b"s3cret\n") && !secret.fits(b""));
        assert_eq!(Secret::read(b"\n"), Err(CredentialError::Length));
    }
}
