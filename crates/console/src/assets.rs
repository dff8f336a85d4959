//! Sheet, script and icon, inside the binary. Their names have their hashes, so
//! that a browser may keep them for good.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE};
use md5::{Digest as _, Md5};
use quintet_http::Problem;
use quintet_types::hex;

/// A file of the pages.
pub(super) struct Asset {
    /// Its name with its hash: `console-0f3a….css`.
    pub(super) name: String,
    media: &'static str,
    bytes: &'static str,
}

impl Asset {
    fn new(stem: &str, end: &str, media: &'static str, bytes: &'static str) -> Self {
        let hash = Md5::digest(bytes.as_bytes());
        Self {
            name: format!("{stem}-{}.{end}", hex(&hash[..8])),
            media,
            bytes,
        }
    }
}

pub(super) static SHEET: LazyLock<Asset> = LazyLock::new(|| {
    let text = include_str!("../assets/console.css");
    Asset::new("console", "css", "text/css; charset=utf-8", text)
});
pub(super) static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    let text = include_str!("../assets/console.js");
    Asset::new("console", "js", "text/javascript; charset=utf-8", text)
});
/// Of a message's page alone, behind [`SCRIPT`].
pub(super) static LOG_SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    let text = include_str!("../assets/log.js");
    Asset::new("log", "js", "text/javascript; charset=utf-8", text)
});
pub(super) static ICON: LazyLock<Asset> = LazyLock::new(|| {
    let text = include_str!("../assets/icon.svg");
    Asset::new("icon", "svg", "image/svg+xml", text)
});

/// Serves `/assets/NAME`: a file that is part of the program, or 404.
pub(super) async fn asset(Path(name): Path<String>) -> Result<Response, Problem> {
    let all = [&*SHEET, &*SCRIPT, &*LOG_SCRIPT, &*ICON];
    let asset = all.into_iter().find(|asset| asset.name == name);
    let asset = asset.ok_or_else(|| Problem::not_found("Page"))?;
    let headers = [
        (CONTENT_TYPE, asset.media),
        (CACHE_CONTROL, "public, max-age=31536000, immutable"),
    ];
    Ok((headers, asset.bytes).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_as_light_as_they_have_to_be() {
        assert!(SHEET.bytes.len() <= 32 << 10, "{}", SHEET.bytes.len());
        assert!(SCRIPT.bytes.len() <= 12 << 10, "{}", SCRIPT.bytes.len());
        assert!(LOG_SCRIPT.bytes.len() <= 6 << 10);
    }

    /// The content security policy allows neither.
    #[test]
    fn the_scripts_make_no_markup() {
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "eval(",
            "document.write",
        ] {
            for script in [&*SCRIPT, &*LOG_SCRIPT] {
                assert!(!script.bytes.contains(word), "{word}");
            }
        }
    }
}
