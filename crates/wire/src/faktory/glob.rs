//! Patterns of MUTATE: `*`, `?`, `[abc]`, `[^a]`, `[a-z]`, `\x`.

/// True if the whole text fits. Each star is tried again only from the last one
/// on, so the time is at most the product of the lengths.
pub(super) fn fits(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to go on if what follows the last star does not fit.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        let one = match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, t));
                p += 1;
                continue;
            }
            Some(_) => one(&pattern[p..], text[t]),
            None => None,
        };
        match (one, star) {
            (Some(len), _) => (p, t) = (p + len, t + 1),
            (None, Some((behind, from))) => {
                star = Some((behind, from + 1));
                (p, t) = (behind, from + 1);
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// The length of the pattern's first element if the byte fits it.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [b'[', ..] => {
            let (fits, len) = class(pattern, byte);
            fits.then_some(len)
        }
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

/// Whether a class has the byte, and its length. One without an end goes to the
/// pattern's.
fn class(pattern: &[u8], byte: u8) -> (bool, usize) {
    let not = pattern.get(1) == Some(&b'^');
    let mut at = 1 + usize::from(not);
    let mut found = false;
    loop {
        match &pattern[at..] {
            [] => return (found != not, at),
            [b']', ..] => return (found != not, at + 1),
            [b'\\', literal, ..] => {
                found |= *literal == byte;
                at += 2;
            }
            [from, b'-', to, ..] if *to != b']' => {
                found |= (*from.min(to)..=*from.max(to)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                found |= *literal == byte;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("*uid:3*", "xx uid:3 yy", true),
            ("uid:3", "xx uid:3 yy", false),
            ("Type?", "TypeA", true),
            ("TypeA", "TypeAB", false),
            ("[abc]x", "bx", true),
            ("[^abc]x", "bx", false),
            ("[a-c]x", "bx", true),
            ("[a-]x", "-x", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("*\"args\":\\[\"fizz\"\\]*", "{\"args\":[\"fizz\"]}", true),
            (
                "*\"args\":\\[\"fizz\"\\]*",
                "{\"args\":[\"fizz\",1]}",
                false,
            ),
            ("[", "a", false),
            ("[^", "a", true),
            ("\\", "\\", true),
            ("a**b", "ab", true),
        ] {
            assert_eq!(
                fits(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn many_stars_take_no_power_of_their_number() {
        let pattern = "a*".repeat(50) + "b";
        assert!(!fits(pattern.as_bytes(), "a".repeat(20_000).as_bytes()));
    }
}
