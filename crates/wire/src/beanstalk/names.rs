//! Names of tubes.

/// Longest tube name.
const NAME_MAX: usize = 200;

/// The tube that is always there.
pub(super) const DEFAULT: &[u8] = b"default";

/// The rest of a line, if it is the name of a tube.
pub(super) fn tube(name: &[u8]) -> Option<&[u8]> {
    let legal = (1..=NAME_MAX).contains(&name.len())
        && name[0] != b'-'
        && name.iter().all(|&byte| is_name_byte(byte));
    legal.then_some(name)
}

/// True if a tube may have this name.
pub(super) fn is_tube(name: &[u8]) -> bool {
    tube(name).is_some()
}

/// True if it may stand in a name.
pub(super) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-+/;.$_()".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let long = [b'a'; NAME_MAX + 1];
        assert!(is_tube(&long[1..]) && !is_tube(&long));
        for (name, legal) in [("a-b", true), ("-a", false), ("", false), ("a b", false)] {
            assert_eq!(is_tube(name.as_bytes()), legal, "{name}");
        }
        assert!(is_tube(b"+/;.$_()9Z") && !is_tube("caf\u{e9}".as_bytes()));
    }
}
