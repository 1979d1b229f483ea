//! Reads the rules of one `.gitignore` file and applies them to paths.
//!
//! Source: gitignore(5) and `wildmatch.c` of git 2.39.

/// The rules of one `.gitignore` file, in line order.
#[derive(Debug, Default)]
pub(super) struct IgnoreFile(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    /// True if the rule begins with `!`, which reverses an earlier rule.
    negated: bool,
    /// True if the rule ends with `/`.
    folders_only: bool,
    /// True if the rule has a `/` before its end. Then the rule matches the whole path instead of just the name.
    whole_path: bool,
    pattern: Vec<Token>,
}

#[derive(Debug)]
enum Token {
    Byte(u8),
    /// `?` or a bracket class. It never matches `/`.
    OneOf(Box<[bool; 256]>),
    /// `*`, which matches any number of bytes other than `/`.
    Star,
    /// `**` at the end, which matches any number of bytes.
    Rest,
    /// `**/`, which matches nothing or any number of folders.
    Folders,
}

impl IgnoreFile {
    /// Parses the file's text. This can't fail, because git considers no rule invalid. A rule with an unclosed bracket,
    /// for example, just matches nothing.
    pub(super) fn parse(text: &[u8]) -> Self {
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        Self(text.split(|&byte| byte == b'\n').filter_map(Rule::parse).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the file's rules ignore the path, false if they include it, and `None` if no rule matches. The
    /// last matching rule decides. The path is relative to the folder of the `.gitignore` file.
    pub(super) fn ignores(&self, path: &[u8], is_folder: bool) -> Option<bool> {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        let matching = self.0.iter().rev().find(|rule| {
            (is_folder || !rule.folders_only)
                && matches(&rule.pattern, if rule.whole_path { path } else { name })
        });
        matching.map(|rule| !rule.negated)
    }
}

impl Rule {
    fn parse(line: &[u8]) -> Option<Self> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.starts_with(b"#") {
            return None;
        }
        let line = without_trailing_spaces(line);
        let (negated, line) = line.strip_prefix(b"!").map_or((false, line), |rest| (true, rest));
        let (folders_only, line) = line.strip_suffix(b"/").map_or((false, line), |rest| (true, rest));
        let whole_path = line.contains(&b'/');
        let pattern = tokens(line.strip_prefix(b"/").unwrap_or(line))?;
        Some(Self { negated, folders_only, whole_path, pattern })
    }
}

/// Removes trailing spaces that aren't protected by a backslash.
fn without_trailing_spaces(line: &[u8]) -> &[u8] {
    let (mut end, mut at) = (0, 0);
    while at < line.len() {
        let width = if line[at] == b'\\' { 2 } else { 1 };
        if line[at] != b' ' {
            end = (at + width).min(line.len());
        }
        at += width;
    }
    &line[..end]
}

/// Splits a pattern into tokens. Returns `None` if the pattern can't match anything, because it is empty, ends with a
/// backslash, or has an unclosed bracket.
fn tokens(pattern: &[u8]) -> Option<Vec<Token>> {
    // git compares the part before the first special character separately, so it treats a "**" directly after that part
    // as if it followed a "/".
    let literal = pattern.iter().position(|byte| b"*?[\\".contains(byte)).unwrap_or(pattern.len());
    let (mut tokens, mut at) = (Vec::new(), 0);
    while at < pattern.len() {
        let begun = at;
        at += 1;
        tokens.push(match pattern[begun] {
            b'?' => {
                let mut any = Box::new([true; 256]);
                any[usize::from(b'/')] = false;
                Token::OneOf(any)
            }
            b'[' => {
                let (class, length) = class(&pattern[at..])?;
                at += length;
                Token::OneOf(class)
            }
            b'\\' => {
                at += 1;
                Token::Byte(*pattern.get(begun + 1)?)
            }
            b'*' => {
                at += pattern[at..].iter().take_while(|&&byte| byte == b'*').count();
                let whole = begun == literal || pattern[begun - 1] == b'/';
                match &pattern[at..] {
                    [] if whole && at - begun > 1 => Token::Rest,
                    [b'/', ..] if whole && at - begun > 1 => {
                        at += 1;
                        Token::Folders
                    }
                    _ => Token::Star,
                }
            }
            byte => Token::Byte(byte),
        });
    }
    (!tokens.is_empty()).then_some(tokens)
}

/// Parses a bracket class, starting after its `[`. Returns the bytes that the class matches, and the length of the
/// parsed text including the `]`.
fn class(text: &[u8]) -> Option<(Box<[bool; 256]>, usize)> {
    let mut members = Box::new([false; 256]);
    let negated = matches!(text.first()?, b'!' | b'^');
    let first = usize::from(negated);
    let (mut at, mut before) = (first, None);
    loop {
        let mut byte = *text.get(at)?;
        at += 1;
        match byte {
            b']' if at > first + 1 => break,
            b'-' if before.is_some() && text.get(at).is_some_and(|&next| next != b']') => {
                let mut last = text[at];
                at += 1;
                if last == b'\\' {
                    last = *text.get(at)?;
                    at += 1;
                }
                (before?..=last).for_each(|byte| members[usize::from(byte)] = true);
                before = None;
                continue;
            }
            b'[' if text.get(at) == Some(&b':') => {
                let end = at + 1 + text[at + 1..].iter().position(|&byte| byte == b']')?;
                if let Some(name) = text[at + 1..end].strip_suffix(b":") {
                    let is_member = named_class(name)?;
                    (0..=u8::MAX).filter(is_member).for_each(|byte| members[usize::from(byte)] = true);
                    (at, before) = (end + 1, None);
                    continue;
                }
            }
            b'\\' => {
                byte = *text.get(at)?;
                at += 1;
            }
            _ => {}
        }
        members[usize::from(byte)] = true;
        before = Some(byte);
    }
    if negated {
        members.iter_mut().for_each(|member| *member = !*member);
    }
    members[usize::from(b'/')] = false;
    Some((members, at))
}

fn named_class(name: &[u8]) -> Option<fn(&u8) -> bool> {
    Some(match name {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |byte| matches!(byte, b' '..=b'~'),
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |byte| matches!(byte, b' ' | b'\t'..=b'\r'),
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    })
}

/// Matches `text` against a pattern. The function reads the text byte by byte and tracks all
/// possible positions in the pattern simultaneously, so no pattern takes exponential time.
fn matches(pattern: &[Token], text: &[u8]) -> bool {
    let mut positions = vec![false; pattern.len() + 1];
    mark_reachable(pattern, 0, &mut positions);
    for &byte in text {
        let mut next = vec![false; pattern.len() + 1];
        for (at, token) in pattern.iter().enumerate().filter(|(at, _)| positions[*at]) {
            match token {
                Token::Byte(expected) if *expected == byte => mark_reachable(pattern, at + 1, &mut next),
                Token::OneOf(members) if members[usize::from(byte)] => {
                    mark_reachable(pattern, at + 1, &mut next);
                }
                Token::Star if byte != b'/' => mark_reachable(pattern, at, &mut next),
                Token::Rest => mark_reachable(pattern, at, &mut next),
                // Within folders, only a "/" leads to the next token.
                Token::Folders => {
                    next[at] = true;
                    if byte == b'/' {
                        mark_reachable(pattern, at + 1, &mut next);
                    }
                }
                _ => {}
            }
        }
        positions = next;
    }
    positions[pattern.len()]
}

/// Marks position `at` and all later positions reachable without consuming another byte of the text.
fn mark_reachable(pattern: &[Token], at: usize, positions: &mut [bool]) {
    if std::mem::replace(&mut positions[at], true) {
        return;
    }
    if matches!(pattern.get(at), Some(Token::Star | Token::Rest | Token::Folders)) {
        mark_reachable(pattern, at + 1, positions);
    }
}
