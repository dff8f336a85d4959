//! Paths as they come in: RQ's clients double slashes (`check_rq` asks for
//! `//q/test.txt`), and the whole may live under a prefix.

use std::borrow::Cow;

/// The path inside `root` (which begins and ends with `/`), with runs of
/// slashes as one and none at the end; `None`: it is outside.
pub fn inside<'a>(path: &'a str, root: &str) -> Option<Cow<'a, str>> {
    let path = single_slashes(path);
    if root == "/" {
        return Some(path);
    }
    let prefix = root.trim_end_matches('/');
    let rest = path.strip_prefix(prefix)?;
    match rest.as_bytes().first() {
        None => Some(Cow::Borrowed("/")),
        Some(b'/') => Some(Cow::Owned(rest.to_owned())),
        Some(_) => None,
    }
}

fn single_slashes(path: &str) -> Cow<'_, str> {
    let trimmed = match path.trim_end_matches('/') {
        "" => "/",
        trimmed => trimmed,
    };
    if trimmed.starts_with('/') && !trimmed.contains("//") {
        return Cow::Borrowed(trimmed);
    }
    let parts = trimmed.split('/').filter(|part| !part.is_empty());
    let mut single = String::with_capacity(trimmed.len() + 1);
    for part in parts {
        single.push('/');
        single.push_str(part);
    }
    Cow::Owned(single)
}

#[cfg(test)]
mod tests {
    use super::inside;

    #[test]
    fn repeated_slashes_count_once() {
        for (path, plain) in [
            ("/", "/"),
            ("//", "/"),
            ("//q/test.txt", "/q/test.txt"),
            ("///q//test.txt", "/q/test.txt"),
            ("/q/test/", "/q/test"),
            ("/q/test.txt", "/q/test.txt"),
        ] {
            assert_eq!(inside(path, "/").as_deref(), Some(plain), "{path}");
        }
    }

    #[test]
    fn a_prefix_is_taken_off() {
        for (path, plain) in [
            ("/rq/q/a", Some("/q/a")),
            ("/rq", Some("/")),
            ("//rq//", Some("/")),
            ("/rqq/a", None),
            ("/q/a", None),
        ] {
            assert_eq!(inside(path, "/rq/").as_deref(), plain, "{path}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_request_target_gives_a_path(path in "(/|//|[a-z.%]{0,3}|é){0,12}") {
            for root in ["/", "/a/"] {
                if let Some(plain) = inside(&path, root) {
                    proptest::prop_assert!(plain.starts_with('/'), "{path}: {plain}");
                    proptest::prop_assert!(!plain.contains("//"), "{path}: {plain}");
                }
            }
        }
    }
}
