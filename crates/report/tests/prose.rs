//! Checks for plain English: lists words to avoid in documentation, help, errors and comments, with advice on what to
//! write instead. `make lint` runs this test, so it is in a crate that compiles in seconds.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The texts that a rule applies to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Documentation, and the sources' comments and string literals, such as help and error texts.
    Everywhere,
    /// User documentation only. The words can be right in a comment.
    Documentation,
}

use Scope::{Documentation, Everywhere};

/// Scope, phrases and advice. A phrase consists of words and punctuation in lower case. Words after `!` are exceptions
/// that may follow the phrase.
struct Rule(Scope, &'static [&'static str], &'static str);

const RULES: &[Rule] = &[
    Rule(
        Everywhere,
        &["whoever", "whosoever", "whomever", "whoso"],
        "name the subject: the user who, the client that, the process that",
    ),
    Rule(
        Everywhere,
        &["somebody", "anybody", r#"nobody ! " \"#, "everybody"],
        "name the subject: another user, any client, no process (the account goes into quotes)",
    ),
    Rule(Everywhere, &["shall", "shalt"], "must, should, or the present tense"),
    Rule(
        Everywhere,
        &[
            "thereof",
            "therein",
            "thereby",
            "thereupon",
            "hereby",
            "herein",
            "wherein",
            "whereof",
            "whereupon",
            "whence",
            "henceforth",
            "lest",
            "albeit",
            "naught",
            "nought",
        ],
        "a word that people say",
    ),
    Rule(Everywhere, &["wish", "wishes", "wished"], "want, ask for, an option, a request"),
    Rule(Everywhere, &["by whatever"], "for any reason, in any way"),
    Rule(Everywhere, &["as new ! as"], "fresh, reset, in the state of its template, as if it were unused"),
    Rule(
        Everywhere,
        &["is no more ! than", "are no more ! than", "be no more ! than"],
        "is removed, is dropped",
    ),
    Rule(Everywhere, &["says nothing of", "say nothing of"], "does not mention, does not set"),
    Rule(Everywhere, &["half - made", "halfmade"], "incomplete, unfinished"),
    Rule(Everywhere, &["dead owner", "dead owners"], "crashed runs"),
    Rule(Everywhere, &["janitor", "clerk", "clerks"], "what it is called in the code"),
    Rule(Documentation, &["whatever", "whichever"], "any, all, regardless of"),
    Rule(Documentation, &["anew", "afresh"], "again, a new one"),
    Rule(Documentation, &["as ever", "for ever"], "as usual; without end, or the bound"),
    Rule(Documentation, &["hence"], "so, therefore"),
    Rule(Documentation, &["flushes nothing"], "runs with `fsync=off`"),
    Rule(Documentation, &["stranger", "strangers"], "other users"),
    Rule(Documentation, &["what is the case"], "the result"),
    Rule(
        Documentation,
        &[", for it", ", for they", ", for he", ", for there", ", for then", ", for no", ", for nothing"],
        "because",
    ),
    Rule(
        Documentation,
        &[". should it", ". should the", ". should a", ". should you", ". should they"],
        "if",
    ),
];

#[test]
fn the_words_are_those_of_the_field() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("it lies two below");
    let mut found = String::new();
    let mut read = 0;
    for page in pages(root) {
        let text = fs::read_to_string(&page).expect("a page that can be read");
        let newest = page.ends_with("CHANGELOG.md");
        let text = if newest { newest_section(&text) } else { &text };
        check(relative(root, &page), &tokens(&markdown(text)), &[Everywhere, Documentation], &mut found);
        read += 1;
    }
    for source in files(&root.join("crates"), "rs") {
        let path = relative(root, &source);
        if path.iter().any(|part| part == "src") {
            let text = fs::read_to_string(&source).expect("a source that can be read");
            check(path, &tokens(&prose(&text)), &[Everywhere], &mut found);
            read += 1;
        }
    }
    assert!(read > 100, "only {read} files were found below {}", root.display());
    assert!(found.is_empty(), "words that plain English does without:\n{found}");
}

#[test]
fn no_page_shows_where_two_versions_met() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("it lies two below");
    for page in pages(root) {
        let text = fs::read_to_string(&page).expect("a page that can be read");
        let mark = text.lines().find(|line| line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> "));
        assert_eq!(mark, None, "{}", page.display());
    }
}

#[test]
fn planted_words_are_found_with_line() {
    let page = "# A page\n\nIt helps whoever\nreads it, for it\nis short. `shall` is code.\n\n```sh\necho shall\n```\nAs\nnew.\n";
    let mut found = String::new();
    check(Path::new("page.md"), &tokens(&markdown(page)), &[Everywhere, Documentation], &mut found);
    let lines: Vec<&str> = found.lines().map(|line| line.split(';').next().unwrap_or(line)).collect();
    assert_eq!(lines, ["page.md:3: \"whoever\"", "page.md:4: \", for it\"", "page.md:10: \"as new\""]);
}

#[test]
fn comments_and_literals_of_sources_are_read() {
    let source = "/// Nobody waits.\nfn nobody() -> &'static str {\n    let c = '\"'; // as new as `shall`\n    \"nobody\"\n}\n\
                  const SAID: &str = r#\"the \"user\" shall\"#;\nconst X: &str = \"it \\\n  shall\";\n/* it shall */\n";
    let mut found = String::new();
    check(Path::new("a.rs"), &tokens(&prose(source)), &[Everywhere], &mut found);
    let lines: Vec<&str> = found.lines().map(|line| line.split(':').nth(1).unwrap_or(line)).collect();
    assert_eq!(lines, ["1", "6", "8", "9"], "{found}");
}

#[test]
fn only_the_newest_changelog_section_counts() {
    assert_eq!(newest_section("# Changes\n\n## [2]\nnew\n\n## [1]\nold\n"), "# Changes\n\n## [2]\nnew\n");
    assert!(newest_section("# Changes\n\n## [2]\nnew\n").contains("new"));
}

fn relative<'a>(root: &Path, path: &'a Path) -> &'a Path {
    path.strip_prefix(root).unwrap_or(path)
}

fn pages(root: &Path) -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
        .map(|name| root.join(name))
        .into();
    pages.extend(files(&root.join("docs"), "md"));
    let clients = fs::read_dir(root.join("clients")).expect("the clients");
    let readmes = clients.map(|entry| entry.expect("an entry").path().join("README.md"));
    pages.extend(readmes.filter(|path| path.is_file()));
    pages.sort();
    pages
}

/// Returns all files with this extension in `folder` and its subfolders, in a fixed order.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of the project") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|other| other == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// A word or punctuation mark, with its line.
type Token = (String, usize);

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut word = String::new();
        for sign in line.chars().chain([' ']) {
            if sign.is_alphanumeric() || sign == '_' || sign == '\'' {
                word.extend(sign.to_lowercase());
                continue;
            }
            if !word.is_empty() {
                tokens.push((std::mem::take(&mut word), number + 1));
            }
            if !sign.is_whitespace() {
                tokens.push((sign.to_string(), number + 1));
            }
        }
    }
    tokens
}

fn check(path: &Path, tokens: &[Token], scopes: &[Scope], found: &mut String) {
    let phrases = phrases(scopes);
    for (at, (first, _)) in tokens.iter().enumerate() {
        for (phrase, instead) in phrases.get(first.as_str()).into_iter().flatten() {
            if phrase.is_at(&tokens[at..]) {
                // Report the word's line, not the line of the full stop before it.
                let line = tokens[at + usize::from(matches!(first.as_str(), "." | ","))].1;
                let said = phrase.words.join(" ");
                found.push_str(&format!("{}:{line}: {said:?}; say: {instead}\n", path.display()));
            }
        }
    }
}

struct Phrase {
    words: Vec<&'static str>,
    unless: Vec<&'static str>,
}

impl Phrase {
    fn new(text: &'static str) -> Self {
        let (words, unless) = text.split_once(" ! ").unwrap_or((text, ""));
        Self { words: words.split(' ').collect(), unless: unless.split_whitespace().collect() }
    }

    fn is_at(&self, tokens: &[Token]) -> bool {
        let next = tokens.get(self.words.len()).map_or("", |token| &token.0);
        tokens.len() >= self.words.len()
            && self.words.iter().zip(tokens).all(|(word, token)| *word == token.0)
            && !self.unless.contains(&next)
    }
}

/// Returns the phrases with these scopes, keyed by their first word.
fn phrases(scopes: &[Scope]) -> HashMap<&'static str, Vec<(Phrase, &'static str)>> {
    let mut by_first: HashMap<_, Vec<_>> = HashMap::new();
    for Rule(_, phrases, instead) in RULES.iter().filter(|rule| scopes.contains(&rule.0)) {
        for phrase in phrases.iter().map(|text| Phrase::new(text)) {
            by_first.entry(phrase.words[0]).or_default().push((phrase, *instead));
        }
    }
    by_first
}

/// Returns the text up to the end of the newest version's section. Keeps everything before it, so that line
/// numbers stay right.
fn newest_section(text: &str) -> &str {
    let from = text.find("\n## ").map_or(0, |at| at + 1);
    let to = text[from..].find("\n## ").map_or(text.len(), |at| from + at);
    &text[..to]
}

/// Returns Markdown without code and link targets. Spaces replace these, so that line numbers stay right.
fn markdown(text: &str) -> String {
    let mut fenced = false;
    let mut out = String::new();
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if !fence && !fenced {
            out.push_str(line);
        }
        out.push('\n');
    }
    without(&without(&out, '`', '`'), '(', ')')
}

/// Replaces the text between `open` and `close` within a paragraph. For brackets, only replaces a link target
/// after a `]`.
fn without(text: &str, open: char, close: char) -> String {
    let mut out = String::new();
    let mut inside = false;
    let mut before = ' ';
    let mut signs = text.chars().peekable();
    while let Some(sign) = signs.next() {
        if inside {
            // The end of a paragraph also ends the replaced text, so that a single unmatched character doesn't hide
            // the rest of a page.
            inside = sign != close && !(sign == '\n' && signs.peek() == Some(&'\n'));
            out.push(if sign == '\n' { '\n' } else { '_' });
        } else if sign == open && (open == close || before == ']') {
            inside = true;
            out.push('_');
        } else {
            out.push(sign);
        }
        before = sign;
    }
    out
}

/// Returns a Rust source's comments and string literals, without code in backticks. Spaces replace everything else. A
/// literal without a space is a name, so it doesn't count as prose.
fn prose(source: &str) -> String {
    let mut out = String::new();
    let mut rest = source;
    while !rest.is_empty() {
        let (length, text) = piece(rest);
        let (now, later) = rest.split_at(length);
        for sign in now.chars() {
            out.push(if sign == '\n' || text { sign } else { ' ' });
        }
        // A phrase can't span two pieces, except for consecutive lines of the same comment.
        if text && !now.starts_with("//") {
            out.push('"');
        }
        rest = later;
    }
    let out = out.replace("///", "   ").replace("//!", "   ").replace("//", "  ");
    without(&out, '`', '`')
}

/// Returns the length of the source's first piece, and whether that piece is prose.
fn piece(rest: &str) -> (usize, bool) {
    let end =
        |from: usize, what: &str| rest[from..].find(what).map_or(rest.len(), |at| from + at + what.len());
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), true);
    }
    if rest.starts_with("/*") {
        return (end(2, "*/"), true);
    }
    if rest.starts_with('"') {
        let mut escaped = false;
        for (at, sign) in rest.char_indices().skip(1) {
            if sign == '"' && !escaped {
                return (at + 1, rest[..at].contains(' '));
            }
            escaped = sign == '\\' && !escaped;
        }
        return (rest.len(), false);
    }
    if let Some(raw) = rest.strip_prefix('r') {
        let hashes = raw.chars().take_while(|sign| *sign == '#').count();
        if raw[hashes..].starts_with('"') {
            let length = end(hashes + 2, &format!("\"{}", "#".repeat(hashes)));
            return (length, rest[..length].contains(' '));
        }
    }
    for quote in ["'\"'", "'\\\"'", "'\\''", "b'\"'"] {
        if rest.starts_with(quote) {
            return (quote.len(), false);
        }
    }
    // A name is a single piece, so that an `r` at its end doesn't begin a literal.
    let name = rest.find(|sign: char| !sign.is_alphanumeric() && sign != '_').unwrap_or(rest.len());
    (name.max(rest.chars().next().map_or(1, char::len_utf8)), false)
}
