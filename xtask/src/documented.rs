//! Public items have a doc comment. Fields and variants need none;
//! rustc's own lint has no such exception.

/// The words that begin an item, behind `pub` and [`BEFORE`].
const ITEMS: [&str; 10] = [
    "const", "enum", "fn", "macro", "mod", "static", "struct", "trait", "type", "union",
];
/// The words that may stand between `pub` and those.
const BEFORE: [&str; 4] = ["async", "extern", "unsafe", "\"C\""];

/// The public items of a source file, and those of its public traits, that
/// have none. `inside` says whether a module has a doc comment in its own file.
pub(crate) fn missing(text: &str, inside: impl Fn(&str) -> bool) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut missing = Vec::new();
    // How far the public trait's items are indented, if in one.
    let mut in_trait: Option<usize> = None;
    for (at, line) in lines.iter().enumerate() {
        // Tests are the last thing in a file.
        if *line == "#[cfg(test)]" && lines.get(at + 1).is_some_and(|next| next.ends_with('{')) {
            break;
        }
        let code = line.trim_start();
        let indent = line.len() - code.len();
        if in_trait.is_some_and(|items| indent < items) && code.starts_with('}') {
            in_trait = None;
        }
        let requested = match code.strip_prefix("pub ") {
            Some(rest) => Some(rest),
            None if in_trait == Some(indent) => Some(code),
            None => None,
        };
        let Some((kind, name)) = requested.and_then(item) else {
            continue;
        };
        if kind == "trait" && code.starts_with("pub ") && !line.ends_with('}') {
            in_trait = Some(indent + 4);
        }
        let elsewhere = kind == "mod" && code.ends_with(';') && inside(name);
        if !elsewhere && !documented(&lines[..at]) {
            missing.push(format!("{}: {kind} {name} has no doc comment", at + 1));
        }
    }
    missing
}

/// The kind and name of the item that a line begins.
fn item(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split([' ', '(', '<', ':', ';', '{', '=']);
    let mut kind = words.next()?;
    while BEFORE.contains(&kind) {
        kind = words.next()?;
    }
    let mut name = words.next()?;
    if kind == "const" && name == "fn" {
        (kind, name) = (name, words.next()?);
    }
    let named = name.starts_with(|c: char| c.is_alphabetic() || c == '_');
    (ITEMS.contains(&kind) && named).then_some((kind, name))
}

/// True if what stands before an item ends with a doc comment and attributes.
fn documented(before: &[&str]) -> bool {
    let mut closed = false;
    for line in before.iter().rev().map(|line| line.trim()) {
        if line.starts_with("#[") {
            closed = false;
        } else if line.starts_with("///") || line.starts_with("//!") {
            return line.starts_with("///");
        } else if line.ends_with(")]") {
            // Of an attribute over several lines.
            closed = true;
        } else if !closed && !line.starts_with("//") {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::missing;

    #[test]
    fn items_need_a_comment_and_fields_do_not() {
        let text = "\
pub mod told;
pub mod silent;
/// Told.
#[derive(Debug)]
#[expect(
    dead_code,
    reason = \"a test\"
)]
pub struct Fine {
    pub field: u8,
}
pub struct Bare;
impl Fine {
    pub const fn one() {}
    /// Told.
    pub async fn two() {}
    pub(crate) fn three() {}
    pub const FOUR: u8 = 4;
}
/// Told.
pub trait Public {
    fn five();
    /// Told.
    fn six() {
        fn inside() {}
    }
    type Seven;
}
pub use told::something;
trait Private {
    fn eight();
}
/// Told.

// Not about this.
pub enum Apart {
    Variant,
}
#[cfg(test)]
mod tests {
    pub fn nine() {}
}
";
        let found = missing(text, |name| name == "told");
        let names: Vec<&str> = found
            .iter()
            .map(|line| line.split(' ').nth(2).unwrap_or_default())
            .collect();
        assert_eq!(
            names,
            ["silent", "Bare", "one", "FOUR", "five", "Seven", "Apart"]
        );
        assert_eq!(found[1], "12: struct Bare has no doc comment");
    }
}
