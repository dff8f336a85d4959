//! Passwords that were found to fit lately: a client that comes again and
//! again, as those of HTTP do, is not checked at full cost each time.

use hashbrown::HashMap;
use sha2::{Digest as _, Sha256};

use crate::credential::Password;

/// For how long it is believed, ms.
const BELIEVED_MS: u64 = 5 * 60_000;
/// Passwords remembered at most; then those whose time is over are forgotten,
/// or all.
const REMEMBERED_MAX: usize = 4096;

/// Remembered passwords that matched. A password itself is not kept: only its digest under a key
/// that the process drew and tells nobody, together with the hash it matches, so a changed one does
/// not match any more.
pub struct Fits {
    key: [u8; 32],
    until_ms: HashMap<[u8; 32], u64>,
}

impl Fits {
    /// Remembers nothing yet. The caller must take `key` at random: it hides remembered passwords.
    pub fn new(key: [u8; 32]) -> Self {
        Self {
            key,
            until_ms: HashMap::new(),
        }
    }

    /// True if it is known that the password fits.
    pub fn know(&self, hash: &Password, password: &[u8], now_ms: u64) -> bool {
        let until = self.until_ms.get(&self.digest(hash, password));
        until.is_some_and(|until| *until > now_ms)
    }

    /// It was found to fit at `now_ms`.
    pub fn learn(&mut self, hash: &Password, password: &[u8], now_ms: u64) {
        if self.until_ms.len() >= REMEMBERED_MAX {
            self.until_ms.retain(|_, until| *until > now_ms);
            if self.until_ms.len() >= REMEMBERED_MAX {
                self.until_ms.clear();
            }
        }
        let digest = self.digest(hash, password);
        self.until_ms
            .insert(digest, now_ms.saturating_add(BELIEVED_MS));
    }

    fn digest(&self, hash: &Password, password: &[u8]) -> [u8; 32] {
        let hash = hash.as_str().as_bytes();
        let parts = Sha256::new()
            .chain_update(self.key)
            .chain_update((hash.len() as u64).to_le_bytes())
            .chain_update(hash)
            .chain_update(password);
        // Twice, as what is known of one digest tells nothing of longer ones.
        Sha256::digest(parts.finalize()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checked_password_is_remembered_for_a_while() {
        let hash = |password: &[u8]| Password::of_cost(password, [1; 16], 8, 1).expect("a hash");
        let (one, other) = (hash(b"one"), hash(b"other"));
        let mut fits = Fits::new([3; 32]);
        assert!(!fits.know(&one, b"one", 0));
        fits.learn(&one, b"one", 1000);
        assert!(fits.know(&one, b"one", 1000 + BELIEVED_MS - 1));
        assert!(!fits.know(&one, b"one", 1000 + BELIEVED_MS));
        assert!(!fits.know(&one, b"other", 1000) && !fits.know(&other, b"one", 1000));
        for n in 0..REMEMBERED_MAX as u64 * 2 {
            fits.learn(&other, &n.to_le_bytes(), 1000);
            assert!(fits.until_ms.len() <= REMEMBERED_MAX);
        }
    }
}
