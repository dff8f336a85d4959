//! Receipt handles and ids of messages: what a client keeps and shows again.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use quintet_types::hex;
use ring::{digest, hmac};
use subtle::ConstantTimeEq as _;

/// Of the bytes of a handle.
const VERSION: u8 = 1;
/// Bytes of a handle before its keyed hash.
const SAID: usize = 1 + 8 + 8 + 4 + 8 + 8;
/// Bytes of a keyed hash that are shown: who guesses needs some 2^63 tries.
const TAG: usize = 8;
/// Characters of a handle at most.
const HANDLE_MAX: usize = 1024;

/// Secrets of a server: the same for as long as its data.
#[derive(Clone)]
pub struct Secrets {
    identity: [u8; 8],
    key: hmac::Key,
}

impl Secrets {
    /// Bytes they are made from.
    pub const BYTES: usize = 40;

    /// From random bytes that are kept: the identity, and the key.
    pub fn new(bytes: &[u8; Self::BYTES]) -> Self {
        let mut identity = [0; 8];
        identity.copy_from_slice(&bytes[..8]);
        Self {
            identity,
            key: hmac::Key::new(hmac::HMAC_SHA256, &bytes[8..]),
        }
    }

    /// The id of a message, as SDKs get it: a UUID of version 8 with the
    /// server's identity and the number under which it was first put.
    pub(crate) fn message_id(&self, born: u64) -> String {
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&self.identity[..6]);
        // Numbers are below 2^63; one bit of them has no room beside the variant.
        bytes[6] = 0x80 | u8::try_from(born >> 62 & 1).unwrap_or(0) | self.identity[6] & 0x0e;
        bytes[7] = self.identity[7];
        bytes[8..].copy_from_slice(&(born & ((1 << 62) - 1) | 1 << 63).to_be_bytes());
        let text = hex(&bytes);
        let parts = [
            &text[..8],
            &text[8..12],
            &text[12..16],
            &text[16..20],
            &text[20..],
        ];
        parts.join("-")
    }

    /// A receipt handle: the lease and a sum of the queue's name, signed.
    pub(crate) fn handle(&self, lease: &Lease, queue: &str) -> String {
        let mut bytes = [0; SAID + TAG];
        bytes[0] = VERSION;
        bytes[1..9].copy_from_slice(&lease.id.to_be_bytes());
        bytes[9..17].copy_from_slice(&lease.place.to_be_bytes());
        bytes[17..21].copy_from_slice(&lease.number.to_be_bytes());
        bytes[21..29].copy_from_slice(&lease.epoch.to_be_bytes());
        bytes[29..37].copy_from_slice(&of_queue(queue));
        let tag = hmac::sign(&self.key, &bytes[..SAID]);
        bytes[SAID..].copy_from_slice(&tag.as_ref()[..TAG]);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The lease that a handle of this queue names; `None`: it names none.
    pub(crate) fn lease(&self, handle: &str, queue: &str) -> Option<Lease> {
        if handle.len() > HANDLE_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(handle).ok()?;
        let (payload, tag) = bytes.split_at_checked(SAID)?;
        let wanted = hmac::sign(&self.key, payload);
        let same = tag.ct_eq(&wanted.as_ref()[..TAG]);
        if !bool::from(same) || payload[0] != VERSION || payload[29..37] != of_queue(queue) {
            return None;
        }
        let eight = |at: usize| -> Option<[u8; 8]> { payload[at..at + 8].try_into().ok() };
        Some(Lease {
            id: u64::from_be_bytes(eight(1)?),
            place: i64::from_be_bytes(eight(9)?),
            number: u32::from_be_bytes(payload[17..21].try_into().ok()?),
            epoch: u64::from_be_bytes(eight(21)?),
        })
    }
}

/// Permanent name of one lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lease {
    pub(crate) id: u64,
    pub(crate) place: i64,
    /// The message's leases so far, with this one.
    pub(crate) number: u32,
    /// Of the log when it was given.
    pub(crate) epoch: u64,
}

fn of_queue(name: &str) -> [u8; 8] {
    let sum = digest::digest(&digest::SHA256, name.as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&sum.as_ref()[..8]);
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Lease = Lease {
        id: u64::MAX >> 1,
        place: i64::MIN,
        number: u32::MAX,
        epoch: 7,
    };

    fn secrets(byte: u8) -> Secrets {
        Secrets::new(&[byte; Secrets::BYTES])
    }

    #[test]
    fn a_handle_is_read_with_the_key_and_for_its_queue_only() {
        let handle = secrets(1).handle(&LEASE, "q");
        assert!(handle.len() <= HANDLE_MAX);
        assert_eq!(secrets(1).lease(&handle, "q"), Some(LEASE));
        assert_eq!(secrets(1).lease(&handle, "other"), None);
        assert_eq!(secrets(2).lease(&handle, "q"), None);
    }

    /// Every handle that differs in one bit, cut ones, and a million at random.
    #[test]
    fn guessed_handles_are_none() {
        let secrets = secrets(1);
        let good = URL_SAFE_NO_PAD
            .decode(secrets.handle(&LEASE, "q"))
            .expect("base64");
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                secrets.lease(&URL_SAFE_NO_PAD.encode(&bytes), "q"),
                None,
                "{bit}"
            );
        }
        for len in 0..good.len() {
            assert_eq!(
                secrets.lease(&URL_SAFE_NO_PAD.encode(&good[..len]), "q"),
                None
            );
        }
        for odd in ["", "x", "é", "====", &"A".repeat(5000)] {
            assert_eq!(secrets.lease(odd, "q"), None);
        }
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut bytes = good;
        for _ in 0..1_000_000 {
            for chunk in bytes[SAID..].chunks_mut(8) {
                state = state
                    .wrapping_mul(0x5851_f42d_4c95_7f2d)
                    .wrapping_add(0x1405_7b7e_f767_814f);
                chunk.copy_from_slice(&state.to_be_bytes()[..chunk.len()]);
            }
            assert_eq!(secrets.lease(&URL_SAFE_NO_PAD.encode(&bytes), "q"), None);
        }
    }

    #[test]
    fn ids_are_uuids_and_differ() {
        let secrets = secrets(0xff);
        let mut seen = std::collections::BTreeSet::new();
        for born in [
            0,
            1,
            2,
            (1 << 61) - 1,
            1 << 61,
            1 << 62,
            (1 << 62) + 1,
            (1 << 63) - 1,
        ] {
            let id = secrets.message_id(born);
            let shape: Vec<usize> = id.split('-').map(str::len).collect();
            assert_eq!(shape, [8, 4, 4, 4, 12], "{id}");
            assert_eq!(&id[14..15], "8", "{id}");
            assert!(matches!(&id[19..20], "8" | "9" | "a" | "b"), "{id}");
            assert!(seen.insert(id));
        }
    }
}
