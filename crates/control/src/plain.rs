//! Errors of the JSON reader in plain English.

/// Characters of a wrong value that an error shows.
const SHOWN: usize = 100;

/// An error of `serde` in the words of JSON: the values that the field takes, and the
/// value that was given. The caller names the field, so the position in the text is left out.
pub fn plain(why: &str) -> String {
    let why = why.rfind(" at line ").map_or(why, |at| &why[..at]);
    if let Some(name) = named(why, "missing field `") {
        return format!("the field \"{name}\" is missing");
    }
    if let Some(name) = named(why, "duplicate field `") {
        return format!("the field \"{name}\" is given twice");
    }
    if let Some((name, known)) = other(why, "unknown field `") {
        let known = known.strip_prefix("one of ").unwrap_or(&known);
        let known = known.replace(" or ", ", ");
        return format!("there is no field \"{}\"; known are {known}", cut(name));
    }
    if let Some((supplied, known)) = other(why, "unknown variant `") {
        return format!("takes {known}; not \"{}\"", cut(supplied));
    }
    let typed = ["invalid type: ", "invalid value: "];
    let typed = typed.iter().find_map(|says| why.strip_prefix(says));
    if let Some((supplied, wanted)) = typed.and_then(|rest| rest.rsplit_once(", expected ")) {
        return format!("takes {}; not {}", taken(wanted), shown(supplied));
    }
    if why.starts_with("invalid length ") && why.contains("expected struct ") {
        return "takes an object; not a list".to_owned();
    }
    if why.starts_with("data did not match any variant") {
        return "takes a number or a text".to_owned();
    }
    why.to_owned()
}

/// The name behind such a beginning.
fn named<'a>(why: &'a str, begin: &str) -> Option<&'a str> {
    why.strip_prefix(begin)?.split('`').next()
}

/// A name that is not known, and those that are.
fn other<'a>(why: &'a str, begin: &str) -> Option<(&'a str, String)> {
    let (name, rest) = why.strip_prefix(begin)?.rsplit_once("`, expected ")?;
    Some((name, rest.replace('`', "")))
}

/// A kind of value as the reader calls it, in the words of JSON.
fn taken(wanted: &str) -> &str {
    match wanted {
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0 on",
        "i32" | "i64" => "a whole number",
        "f32" | "f64" => "a number",
        wanted if wanted.starts_with("struct ") => "an object",
        wanted => wanted,
    }
}

/// A value as the reader shows it, in the words of JSON.
fn shown(supplied: &str) -> String {
    match supplied {
        "map" => return "an object".to_owned(),
        "sequence" => return "a list".to_owned(),
        _ => {}
    }
    let kinds = ["integer ", "floating point ", "boolean ", "string "];
    let value = kinds.iter().find_map(|kind| supplied.strip_prefix(kind));
    cut(value.unwrap_or(supplied).trim_matches('`'))
}

/// The beginning of a text, if it is long.
fn cut(text: &str) -> String {
    let mut begin: String = text.chars().take(SHOWN).collect();
    if begin.len() < text.len() {
        begin.push_str("...");
    }
    begin
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn errors_of_the_reader_are_in_plain_english() {
        for (why, expected) in [
            (
                "missing field `messages` at line 1 column 2",
                "the field \"messages\" is missing",
            ),
            (
                "duplicate field `body` at line 1 column 31",
                "the field \"body\" is given twice",
            ),
            (
                "unknown field `a`, expected `messages` or `wait_ms` at line 1 column 10",
                "there is no field \"a\"; known are messages, wait_ms",
            ),
            (
                "unknown variant `x`, expected one of `a`, `b`, `c` at line 1 column 59",
                "takes one of a, b, c; not \"x\"",
            ),
            (
                "invalid type: string \"x, expected y\", expected u32 at line 1 column 39",
                "takes a whole number from 0 to 4294967295; not \"x, expected y\"",
            ),
            (
                "invalid value: integer `-1`, expected u64 at line 1 column 38",
                "takes a whole number from 0 on; not -1",
            ),
            (
                "invalid type: map, expected a sequence at line 1 column 12",
                "takes a list; not an object",
            ),
            (
                "invalid type: string \"x\", expected struct Dedupe at line 1 column 37",
                "takes an object; not \"x\"",
            ),
            ("something else", "something else"),
        ] {
            assert_eq!(plain(why), expected, "{why}");
        }
    }
}
