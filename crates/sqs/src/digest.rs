//! The MD5 sums that SDKs compare.

use md5::{Digest as _, Md5};
use quintet_types::hex;

use crate::value::{Value, ValueKind};

/// The sum of a body, in hexadecimal digits.
pub fn of_body(body: &[u8]) -> String {
    hex(&Md5::digest(body))
}

/// The sum of attributes, in the order of their names; `None`: there are none.
pub(crate) fn of_attributes<'a>(
    attributes: impl IntoIterator<Item = (&'a str, Value<'a>)>,
) -> Option<String> {
    let mut sum = Md5::new();
    let mut any = false;
    for (name, value) in attributes {
        any = true;
        add(&mut sum, name.as_bytes());
        add(&mut sum, value.data_type.as_bytes());
        sum.update([match value.kind() {
            ValueKind::String | ValueKind::Number => 1,
            ValueKind::Binary => 2,
        }]);
        add(&mut sum, value.bytes);
    }
    any.then(|| hex(&sum.finalize()))
}

/// Four bytes of length, and the bytes.
fn add(sum: &mut Md5, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    sum.update(len.to_be_bytes());
    sum.update(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(attributes: &[(&str, &str, &[u8])]) -> Option<String> {
        of_attributes(
            attributes
                .iter()
                .map(|(name, data_type, bytes)| (*name, Value { data_type, bytes })),
        )
    }

    /// All that section 6 of the specification works out, most of them sums that AWS gave.
    #[test]
    fn sums_are_as_published() {
        for (body, wanted) in [
            ("hello", "5d41402abc4b2a76b9719d911017c592"),
            ("message-1", "3d6b824fd8c1520e9a047d21fee6fb1f"),
        ] {
            assert_eq!(of_body(body.as_bytes()), wanted);
        }
        let three: &[(&str, &str, &[u8])] = &[
            ("Name", "String", "hé".as_bytes()),
            ("bin", "Binary", &[0, 0xff]),
            ("n", "Number.int", b"42"),
        ];
        let general: &[(&str, &str, &[u8])] = &[
            ("General", "String", b"Kenobi"),
            ("Hello", "String", b"There"),
            ("Help.Me", "String", b"Me"),
        ];
        for (attributes, wanted) in [
            (three, "80fa93021d530b96009893fafddaf3b5"),
            (
                &[("Foo", "String", b"Bar".as_slice())],
                "ae7155c6026991b6d54b11589678bf9c",
            ),
            (
                &[(
                    "timestamp",
                    "Number.java.lang.Long",
                    b"1493147359900".as_slice(),
                )],
                "2e2e4876d8e0bd6b8c2c8f556831c349",
            ),
            (general, "4c360f3fdafd970e05fae2f149d997f5"),
            (&general[1..2], "a311262e065454b75da111d535b8dacd"),
            (
                &[(
                    "attr1",
                    "Binary",
                    b"traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c-2d2482211f6489da-01"
                        .as_slice(),
                )],
                "8cbe4db156db8a94db8b801b7addb984",
            ),
            (
                &[(
                    "AWSTraceHeader",
                    "String",
                    b"Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
                        .as_slice(),
                )],
                "5ae4d5d7636402d80f4eb6d213245a88",
            ),
        ] {
            assert_eq!(sum(attributes).as_deref(), Some(wanted), "{attributes:?}");
        }
        assert_eq!(sum(&[]), None);
    }
}
