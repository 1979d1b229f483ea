//! Provides the frame of every HTML page that pgfresh writes to a file.
//!
//! A page is a single file that loads nothing, so it works offline. The page's content security policy only allows its
//! own style sheet and script. Text from a report can't add another script, even if the text weren't escaped.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use crate::text::html;

/// Style sheet of the live page and of all reports.
pub const STYLE_SHEET: &str = include_str!("style.css");
/// Script for reports. Sorts tables and copies statements to the clipboard.
const SCRIPT: &str = include_str!("page.js");

/// Returns a content security policy for a page that only uses [`STYLE_SHEET`] and `script`. `script` is the page's
/// script, possibly empty.
#[must_use]
pub fn content_policy(script: &str) -> String {
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
    let script = if script.is_empty() { "'none'".to_owned() } else { hash(script) };
    let style = hash(STYLE_SHEET);
    format!("default-src 'none'; style-src {style}; script-src {script}; base-uri 'none'; form-action 'none'")
}

/// Returns a report's page. `main` is HTML.
pub(crate) fn of_report(title: &str, main: &str) -> String {
    page(title, main, SCRIPT)
}

/// Returns a page without a script, with a heading and HTML below it.
#[must_use]
pub fn plain_page(title: &str, main: &str) -> String {
    page(title, &format!("<header><h1>{}</h1></header>\n<main>\n{main}</main>\n", html(title)), "")
}

fn page(title: &str, content: &str, script: &str) -> String {
    let (title, policy) = (html(title), content_policy(script));
    let script = if script.is_empty() { String::new() } else { format!("<script>{script}</script>\n") };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <style>{STYLE_SHEET}</style>\n</head>\n<body>\n<div class=\"page\">\n{content}</div>\n{script}</body>\n</html>\n"
    )
}
