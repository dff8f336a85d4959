//! Modules that import each other in a circle: none of them can be read, or
//! tested, without all the others.

use std::collections::{BTreeMap, BTreeSet};

/// The circles of modules in these files, a line each. Files are named from the root.
pub(crate) fn all(files: &[(String, String)]) -> Vec<String> {
    let mut crates: BTreeMap<&str, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (file, text) in files {
        let Some((krate, within)) = file.split_once("src/") else {
            continue;
        };
        if file.ends_with("tests.rs") {
            continue;
        }
        let module = module_of(within);
        let imports = imports(&module, text);
        crates.entry(krate).or_default().insert(module, imports);
    }
    let found = crates.iter().flat_map(|(krate, paths)| {
        let circles = circles(paths).into_iter();
        circles.map(move |circle| {
            let names = circle.join(", ");
            format!("{krate}src: {names} import each other in a circle")
        })
    });
    found.collect()
}

/// Those of a crate, each by the names of its modules.
fn circles(paths: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let edges = between(paths);
    let mut found = Vec::new();
    let mut left: Vec<&String> = edges.keys().collect();
    while let Some(module) = left.pop() {
        let there = reached(&edges, module);
        let circle: Vec<String> = there
            .into_iter()
            .filter(|other| reached(&edges, other).contains(module))
            .collect();
        if circle.len() > 1 {
            left.retain(|other| !circle.contains(other));
            found.push(circle);
        }
    }
    found
}

/// `a/b.rs` and `a/b/mod.rs` are `a::b`; the crate's own file is nothing.
fn module_of(file: &str) -> String {
    let path = file.trim_end_matches(".rs");
    let path = path.strip_suffix("mod").unwrap_or(path);
    match path.trim_end_matches('/') {
        "lib" | "main" => String::new(),
        path => path.replace('/', "::"),
    }
}

/// The modules each one imports from, itself left out.
fn between(paths: &BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, BTreeSet<String>> {
    let resolve = |path: &String| {
        let mut path = path.as_str();
        loop {
            if path.is_empty() || paths.contains_key(path) {
                return path.to_owned();
            }
            path = path.rsplit_once("::").map_or("", |(parent, _)| parent);
        }
    };
    // What a path through the crate's own file leads to is re-exported there;
    // that file imports from all and is no part of a circle worth naming.
    let of = |module: &String, paths: &BTreeSet<String>| {
        let all = paths.iter().map(resolve);
        all.filter(|other| other != module && !other.is_empty())
            .collect()
    };
    let named = paths.iter().filter(|(module, _)| !module.is_empty());
    named
        .map(|(module, paths)| (module.clone(), of(module, paths)))
        .collect()
}

fn reached(edges: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let mut there = BTreeSet::new();
    let mut left = vec![from.to_owned()];
    while let Some(module) = left.pop() {
        for other in edges.get(&module).into_iter().flatten() {
            if there.insert(other.clone()) {
                left.push(other.clone());
            }
        }
    }
    there
}

/// The paths of this crate that a module's text names, its tests' left out,
/// from the crate's root.
fn imports(module: &str, text: &str) -> BTreeSet<String> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or("");
    let code: Vec<&str> = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or(""))
        .collect();
    let code = code.join(" ");
    let mut found = BTreeSet::new();
    for root in ["crate::", "super::"] {
        for (at, _) in code.match_indices(root) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let mut base: Vec<&str> = match root {
                "super::" => module.split("::").collect(),
                _ => Vec::new(),
            };
            let mut rest = &code[at..];
            rest = rest.strip_prefix("crate::").unwrap_or(rest);
            while let Some(behind) = rest.strip_prefix("super::") {
                base.pop();
                rest = behind;
            }
            expand(&base.join("::"), rest, &mut found);
        }
    }
    found
}

/// Adds the paths that stand at the beginning of `text`: one, or several in
/// braces. Answers what is behind them.
fn expand<'a>(base: &str, text: &'a str, found: &mut BTreeSet<String>) -> &'a str {
    let under = |name: &str| match base {
        "" => name.to_owned(),
        base => format!("{base}::{name}"),
    };
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = rest.trim_start_matches([' ', ',']);
            if rest.is_empty() {
                return rest;
            }
            if let Some(behind) = rest.strip_prefix('}') {
                return behind;
            }
            let behind = expand(base, rest, found);
            // `as` and its name.
            let end = behind.find([',', '}', '{']).unwrap_or(behind.len());
            rest = &behind[end..];
            if rest.starts_with('{') {
                return rest;
            }
        }
    }
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '*';
    let end = text.find(|c| !is_name(c)).unwrap_or(text.len());
    let path = under(&text[..end]);
    match text[end..].strip_prefix("::") {
        Some(rest) if rest.starts_with(|c| is_name(c) || c == '{') => expand(&path, rest, found),
        _ => {
            found.insert(path);
            &text[end..]
        }
    }
}

#[cfg(test)]
mod tests {
    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<(String, String)> = files
            .iter()
            .map(|(file, text)| (format!("crates/web/src/{file}"), (*text).to_owned()))
            .collect();
        super::all(&files)
    }

    #[test]
    fn circles_are_found_and_trees_are_none() {
        let tree = [
            ("lib.rs", "mod a;\nmod b;\npub use a::A;"),
            ("a.rs", "use crate::b::c::{self, D};\nuse std::fmt;"),
            ("b/mod.rs", "mod c;\nuse self::c::D;"),
            (
                "b/c.rs",
                "// crate::a::A\npub struct D;\n#[cfg(test)]\nmod tests {\n use crate::a::A;\n}",
            ),
        ];
        assert!(circles(&tree).is_empty());
        for back in [
            "use crate::a::A;",
            "use crate::{a::{A, B as C}, x};",
            "use crate::{\n    x::{y, z},\n    a,\n};",
            "use super::super::a::A;",
            "fn f() -> crate::a::A {}",
        ] {
            let mut round = tree;
            round[3].1 = back;
            let found = circles(&round);
            let wanted = ["crates/web/src: a, b::c import each other in a circle"];
            assert_eq!(found, wanted, "{back}");
        }
    }
}
