//! Checks the links of the documentation: every relative link and `#anchor` of a Markdown file resolves,
//! `docs/SUMMARY.md` lists every page of the book once, and pages that sources, scripts and settings cite exist.
//!
//! `crates/cli/tests/integration/docs.rs` runs the command blocks of the pages.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use trueup_tests::root;

/// What the checks need of a Markdown file.
struct Page {
    /// Line from 1, and target.
    links: Vec<(usize, String)>,
    anchors: BTreeSet<String>,
    /// Line from 1, and HTML tag. mdBook drops what looks like one.
    tags: Vec<(usize, String)>,
}

#[test]
fn links_and_anchors_resolve() {
    let pages = pages();
    let mut faults = Vec::new();
    for (path, page) in &pages {
        for (line, target) in &page.links {
            if let Err(fault) = resolve(&pages, path, target) {
                faults.push(format!("{path}:{line}: {target}: {fault}"));
            }
        }
    }
    report("links that do not resolve", &faults);
}

#[test]
fn pages_contain_no_html() {
    let pages = pages();
    let book = pages.iter().filter(|(path, _)| path.starts_with("docs/"));
    let faults = book.flat_map(|(path, page)| page.tags.iter().map(move |(line, tag)| format!("{path}:{line}: {tag}")));
    report("HTML tags (write \\<tag> or `<tag>` for the text)", &faults.collect::<Vec<_>>());
}

#[test]
fn the_summary_lists_every_page_once() {
    let pages = pages();
    let mut listed = BTreeMap::new();
    for (_, target) in &pages["docs/SUMMARY.md"].links {
        *listed.entry(format!("docs/{target}")).or_insert(0) += 1;
    }
    let is_page = |path: &str| path.starts_with("docs/") && path != "docs/SUMMARY.md";
    let orphans = pages.keys().filter(|path| is_page(path) && !listed.contains_key(*path));
    let mut faults: Vec<String> = orphans.map(|path| format!("{path} is not listed")).collect();
    faults.extend(listed.iter().filter(|(_, count)| **count > 1).map(|(path, _)| format!("{path} is listed twice")));
    faults.extend(listed.keys().filter(|path| !pages.contains_key(*path)).map(|path| format!("{path} does not exist")));
    report("docs/SUMMARY.md", &faults);
}

#[test]
fn cited_pages_exist() {
    let pages = pages();
    let mut faults = Vec::new();
    // This file cites pages that do not exist, as examples.
    for path in files().into_iter().filter(|path| path != "tests/tests/integration/docs.rs") {
        let Ok(text) = fs::read_to_string(root().join(&path)) else { continue };
        for (index, line) in text.lines().enumerate() {
            for cited in line.split("docs/").skip(1).filter_map(cited_page) {
                let (page, anchor) = cited.split_once('#').unwrap_or((&cited, ""));
                let found = pages.get(&format!("docs/{page}"));
                if !found.is_some_and(|page| anchor.is_empty() || page.anchors.contains(anchor)) {
                    faults.push(format!("{path}:{}: docs/{cited}", index + 1));
                }
            }
        }
    }
    report("citations of pages or sections that do not exist", &faults);
}

#[test]
fn faulty_links_are_found() {
    let page = |text: &str| read(text);
    let pages: BTreeMap<String, Page> = [
        (
            "docs/a.md".to_owned(),
            page("# One `code` title, 中文!\n\n## Same\n\n## Same\n\n[b](zh/b.md#there) `[no](link)`"),
        ),
        ("docs/zh/b.md".to_owned(), page("# There\n\n```sh\n# not a heading\n```\n")),
        ("README.md".to_owned(), page("# Top")),
    ]
    .into();
    let anchors: Vec<&str> = pages["docs/a.md"].anchors.iter().map(String::as_str).collect();
    assert_eq!(anchors, ["one-code-title-中文", "same", "same-1"]);
    assert_eq!(pages["docs/a.md"].links, [(7, "zh/b.md#there".to_owned())]);
    assert_eq!(read("\\<a> `<b>`\n<!-- c -->\nx <d> y").tags, [(3, "<d>".to_owned())]);
    for good in ["#same-1", "zh/b.md", "zh/b.md#there", "https://example.com/x#y"] {
        assert_eq!(resolve(&pages, "docs/a.md", good), Ok(()), "{good}");
    }
    for bad in ["#same-2", "zh/c.md", "zh/b.md#not-a-heading", "b.md", "../README.md", "/docs/a.md", "../../x.md"] {
        assert!(resolve(&pages, "docs/a.md", bad).is_err(), "{bad}");
    }
    assert_eq!(resolve(&pages, "README.md", "docs/a.md#same"), Ok(()));
}

/// Whether a link of the page at `from` leads to a file and an anchor that exist.
fn resolve(pages: &BTreeMap<String, Page>, from: &str, target: &str) -> Result<(), String> {
    if ["https://", "http://", "mailto:"].iter().any(|scheme| target.starts_with(scheme)) {
        return Ok(());
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = match file {
        "" => from.to_owned(),
        _ => join(from, file).ok_or("expected a path inside the repository, relative to the page")?,
    };
    if from.starts_with("docs/") && !path.starts_with("docs/") {
        return Err("leaves docs/, so it has no target in the built book".to_owned());
    }
    match pages.get(&path) {
        Some(page) if anchor.is_empty() || page.anchors.contains(anchor) => Ok(()),
        Some(_) => Err(format!("{path} has no heading with the anchor #{anchor}")),
        None if root().join(&path).exists() && anchor.is_empty() => Ok(()),
        None => Err(format!("{path} does not exist")),
    }
}

/// A path relative to the directory of `from`, as a path from the root of the repository.
fn join(from: &str, file: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for component in Path::new(file).components() {
        match component {
            Component::Normal(name) => parts.push(name.to_str()?),
            Component::ParentDir => parts.pop().map(|_| ())?,
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(parts.join("/"))
}

/// `name.md` or `zh/name.md#anchor` at the start of what follows `docs/`.
fn cited_page(rest: &str) -> Option<String> {
    let is_of_path = |character: char| character.is_ascii_alphanumeric() || "-_/.".contains(character);
    let path = &rest[..rest.find(|character| !is_of_path(character)).unwrap_or(rest.len())];
    let path = &path[..path.find(".md")? + 3];
    let anchor = rest[path.len()..].strip_prefix('#').unwrap_or("");
    let is_of_anchor = |character: char| character.is_alphanumeric() || "-_".contains(character);
    let anchor = &anchor[..anchor.find(|character| !is_of_anchor(character)).unwrap_or(anchor.len())];
    Some(if anchor.is_empty() { path.to_owned() } else { format!("{path}#{anchor}") })
}

fn pages() -> BTreeMap<String, Page> {
    let markdown = files().into_iter().filter(|path| path.ends_with(".md"));
    markdown
        .map(|path| {
            let page = read(&fs::read_to_string(root().join(&path)).expect("pages are UTF-8"));
            (path, page)
        })
        .collect()
}

fn read(text: &str) -> Page {
    let mut page = Page { links: Vec::new(), anchors: BTreeSet::new(), tags: Vec::new() };
    let mut heading: Option<String> = None;
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES).into_offset_iter() {
        let line = || text[..range.start].matches('\n').count() + 1;
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                page.links.push((line(), dest_url.into_string()));
            }
            Event::Html(tag) | Event::InlineHtml(tag) if !tag.starts_with("<!--") => {
                page.tags.push((line(), tag.trim().to_owned()));
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let anchor = anchor(&heading.take().expect("a heading ends after it starts"));
                let repeated = (1..).map(|count| format!("{anchor}-{count}"));
                let mut names = std::iter::once(anchor.clone()).chain(repeated);
                let free = names.find(|name| !page.anchors.contains(name)).expect("numbers do not end");
                page.anchors.insert(free);
            }
            Event::Text(words) | Event::Code(words) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&words);
                }
            }
            _ => {}
        }
    }
    page
}

/// The anchor that GitHub and mdBook give to a heading.
fn anchor(heading: &str) -> String {
    let letter = |character: char| match character {
        ' ' => Some('-'),
        '-' | '_' => Some(character),
        _ if character.is_alphanumeric() => Some(character),
        _ => None,
    };
    heading.trim().to_lowercase().chars().filter_map(letter).collect()
}

/// All files of the repository as paths from its root, without build output.
fn files() -> Vec<String> {
    let mut files = Vec::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(root().join(&directory)).expect("directories can be read") {
            let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
            let path = directory.join(&name);
            if root().join(&path).is_dir() {
                if !["target", ".git", "__pycache__"].contains(&name.as_str()) {
                    directories.push(path);
                }
            } else {
                files.push(path.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    files.sort();
    files
}

#[track_caller]
fn report(title: &str, faults: &[String]) {
    assert!(faults.is_empty(), "{title}:\n  {}", faults.join("\n  "));
}
