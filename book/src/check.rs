//! Do the links of a site lead somewhere?

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

/// The places in a page, and the targets of its links.
#[derive(Default)]
struct Page {
    places: BTreeSet<String>,
    links: Vec<String>,
}

/// The links of all pages below `site` that lead to no file of it, or to no
/// place in one. Where else they lead is not looked at.
///
/// # Errors
/// If files cannot be read.
pub(crate) fn dead_links(site: &Path) -> Result<Vec<String>> {
    let mut files = BTreeSet::new();
    list(site, Path::new(""), &mut files)?;
    let mut pages = BTreeMap::new();
    for file in &files {
        // The page for what is not found does not know where it is shown.
        let is_page = file.extension().is_some_and(|ending| ending == "html");
        if is_page && file != Path::new("404.html") {
            let text = std::fs::read_to_string(site.join(file))
                .with_context(|| file.display().to_string())?;
            pages.insert(file.clone(), page(&text));
        }
    }
    let mut dead = Vec::new();
    for (file, page) in &pages {
        for link in &page.links {
            if !leads(link, file, &files, &pages) {
                dead.push(format!("{}: {link}", file.display()));
            }
        }
    }
    Ok(dead)
}

fn list(site: &Path, below: &Path, files: &mut BTreeSet<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(site.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            list(site, &path, files)?;
        } else {
            files.insert(path);
        }
    }
    Ok(())
}

fn leads(
    link: &str,
    from: &Path,
    files: &BTreeSet<PathBuf>,
    pages: &BTreeMap<PathBuf, Page>,
) -> bool {
    let (path, place) = match link.split_once('#') {
        Some((path, place)) => (path, Some(place)),
        None => (link, None),
    };
    // A scheme stands before the first slash.
    if path
        .split('/')
        .next()
        .is_some_and(|word| word.contains(':'))
    {
        return true;
    }
    let file = match path {
        "" => Some(from.to_owned()),
        path => resolved(from, path),
    };
    let Some(file) = file.filter(|file| files.contains(file)) else {
        return false;
    };
    match (place, pages.get(&file)) {
        (None | Some(""), _) => true,
        (Some(place), Some(page)) => page.places.contains(place),
        (Some(_), None) => false,
    }
}

/// The file of the site that a page's link names; None if it is outside.
fn resolved(from: &Path, path: &str) -> Option<PathBuf> {
    let mut file = from.parent().unwrap_or(Path::new("")).to_owned();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => file.push(name),
            Component::CurDir => {}
            Component::ParentDir if file.pop() => {}
            _ => return None,
        }
    }
    Some(file)
}

/// Reads a page's tags. Text has its `<` escaped; scripts have not, and are
/// passed over.
fn page(html: &str) -> Page {
    let mut page = Page::default();
    let mut rest = html;
    while let Some((_, from)) = rest.split_once('<') {
        let Some((tag, behind)) = from.split_once('>') else {
            break;
        };
        rest = behind;
        if let Some(id) = attribute(tag, "id") {
            page.places.insert(id.to_owned());
        }
        let link = ["href", "src"]
            .into_iter()
            .find_map(|name| attribute(tag, name));
        page.links
            .extend(link.map(|link| link.replace("&amp;", "&")));
        if tag.starts_with("script") {
            rest = rest.split_once("</script").map_or("", |(_, rest)| rest);
        }
    }
    page
}

/// The value of a tag's attribute.
fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let (_, value) = tag.split_once(&format!(" {name}=\""))?;
    value.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::dead_links;

    #[test]
    fn what_leads_nowhere_is_named() {
        let site = std::env::temp_dir().join(format!("quintet-book-{}", std::process::id()));
        std::fs::create_dir_all(site.join("inner")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(site.join(name), text).unwrap();
        write(
            "a.html",
            "<h1 id=\"top\">x</h1><a href=\"#top\">1</a><a href=\"#none\">2</a>\
             <a href=\"inner/b.html#place\">3</a><a href=\"inner/b.html#none\">4</a>\
             <a href=\"https://example.org/none#x\">5</a><img src=\"none.png\">\
             <script>'<a href=\"script.html\">'</script><code>&lt;a href=\"code\"></code>",
        );
        write(
            "inner/b.html",
            "<h1 id=\"place\">x</h1><a href=\"../a.html\">1</a><a href=\"../../a.html\">2</a>\
             <a href=\"../none.html\">3</a>",
        );
        write("404.html", "<a href=\"nowhere.html\">");
        let dead = dead_links(&site);
        std::fs::remove_dir_all(&site).unwrap();
        assert_eq!(
            dead.unwrap(),
            [
                "a.html: #none",
                "a.html: inner/b.html#none",
                "a.html: none.png",
                "inner/b.html: ../../a.html",
                "inner/b.html: ../none.html",
            ]
        );
    }
}
