//! How much of the engine is asserted, in release builds too.

use std::path::Path;

const ASSERTIONS: [&str; 4] = ["assert!(", "assert_eq!(", ".expect(", "expect_queue("];

/// Lines of code, and those with an assertion, of the files in a folder; tests do not count.
fn count(folder: &Path) -> (usize, usize) {
    let (mut lines, mut asserted) = (0, 0);
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            let (more, of_them) = count(&path);
            (lines, asserted) = (lines + more, asserted + of_them);
            continue;
        }
        let name = path.to_string_lossy().into_owned();
        if name.ends_with("damaged.rs") || name.ends_with("_tests.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a file");
        let code = text.split("mod tests {").next().unwrap_or_default();
        let code = code.lines().map(str::trim);
        for line in code.filter(|line| !line.is_empty() && !line.starts_with("//")) {
            lines += 1;
            asserted += usize::from(ASSERTIONS.iter().any(|word| line.contains(word)));
        }
    }
    (lines, asserted)
}

#[test]
fn six_lines_of_a_thousand_assert_something() {
    for folder in ["store", "decide"] {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let (lines, asserted) = count(&source.join(folder));
        assert!(lines > 5000, "{folder}: {lines} lines were found");
        assert!(
            asserted * 1000 >= lines * 6,
            "{folder}: {asserted} assertions in {lines} lines"
        );
    }
}
