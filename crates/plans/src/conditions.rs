//! Splits the conditions in plans, which PostgreSQL prints as fully parenthesized expressions.
//!
//! Unexpected text yields fewer parts, never an error. This is safe because PostgreSQL checks every index that results
//! from a condition.

use pgwire::{SqlLexer, Token, TokenKind};

use crate::names::unquoted;

/// A reference to a column of a relation in the plan.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Reference {
    /// Alias of the relation in the plan.
    pub(crate) alias: String,
    /// Name of the column, or `*` for the whole row.
    pub(crate) column: String,
}

/// One operand of an AND.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Test<'a> {
    /// `left operator right`, or `left operator ANY (right)`.
    Comparison { left: &'a str, operator: &'a str, right: &'a str, any: bool },
    /// `of IS NULL` or `of IS NOT NULL`.
    Null { of: &'a str, not: bool },
    /// A Boolean column, alone or after `NOT`.
    Boolean { of: &'a str, not: bool },
}

/// A token with its position in the text.
#[derive(Debug, Clone, Copy)]
struct Placed<'a> {
    token: Token<'a>,
    start: usize,
    end: usize,
    /// Number of parentheses and brackets around the token. A parenthesis or bracket is at the same depth as its contents.
    depth: usize,
}

impl Placed<'_> {
    fn is_operator(&self) -> bool {
        self.token.kind == TokenKind::Sign && b"+-*/<>=~!@#%^&|`?".contains(&self.token.text[0])
    }
}

/// Splits the text at top-level ANDs, after removing parentheses that enclose the whole text.
pub(crate) fn conjuncts(text: &str) -> Vec<&str> {
    split(text, b"and")
}

/// Splits the text at top-level ORs, after removing parentheses that enclose the whole text.
pub(crate) fn disjuncts(text: &str) -> Vec<&str> {
    split(text, b"or")
}

fn split<'a>(text: &'a str, word: &[u8]) -> Vec<&'a str> {
    let text = without_parentheses(text);
    let mut parts = Vec::new();
    let mut start = 0;
    for placed in tokens(text) {
        if placed.depth == 0 && placed.token.is_word(word) {
            parts.push(text[start..placed.start].trim());
            start = placed.end;
        }
    }
    parts.push(text[start..].trim());
    parts
}

/// Returns the condition's kind and operands. `None` for a condition that an index can't serve.
pub(crate) fn test(text: &str) -> Option<Test<'_>> {
    let text = without_parentheses(text);
    let tokens = tokens(text);
    let outer: Vec<&Placed<'_>> = tokens.iter().filter(|placed| placed.depth == 0).collect();
    if let Some(of) = text_before_null(text, &outer) {
        return Some(of);
    }
    let not = outer.first()?.token.is_word(b"not");
    let of = if not { text[outer[0].end..].trim() } else { text };
    if single_reference(of).is_some() {
        return Some(Test::Boolean { of, not });
    }
    let first = outer.iter().position(|placed| placed.is_operator())?;
    let joined = |pair: &[&Placed<'_>]| pair[0].end == pair[1].start && pair[1].is_operator();
    let last = first + outer[first..].windows(2).take_while(|pair| joined(pair)).count();
    if outer[last + 1..].iter().any(|placed| placed.is_operator()) {
        return None;
    }
    let operator = &text[outer[first].start..outer[last].end];
    let left = text[..outer[first].start].trim();
    let mut right = text[outer[last].end..].trim();
    let next = outer.get(last + 1);
    if next.is_some_and(|placed| placed.token.is_word(b"all")) {
        return None;
    }
    let any = next.is_some_and(|placed| placed.token.is_word(b"any"));
    if any {
        right = right["any".len()..].trim();
    }
    (!left.is_empty() && !right.is_empty()).then_some(Test::Comparison { left, operator, right, any })
}

/// Parses `of IS NULL` or `of IS NOT NULL`.
fn text_before_null<'a>(text: &'a str, outer: &[&Placed<'_>]) -> Option<Test<'a>> {
    let [.., before_last, last] = outer else { return None };
    if !last.token.is_word(b"null") {
        return None;
    }
    let not = before_last.token.is_word(b"not");
    let is = if not { outer.get(outer.len().checked_sub(3)?)? } else { before_last };
    let of = text[..is.start].trim();
    (is.token.is_word(b"is") && !of.is_empty()).then_some(Test::Null { of, not })
}

/// Returns all columns in the text, without duplicates, in order of appearance.
pub(crate) fn references(text: &str) -> Vec<Reference> {
    let mut found = Vec::new();
    for (reference, _, _) in places(text) {
        if !found.contains(&reference) {
            found.push(reference);
        }
    }
    found
}

/// Returns the column if the text consists of a single column, with or without parentheses.
pub(crate) fn single_reference(text: &str) -> Option<Reference> {
    let text = without_parentheses(text);
    match places(text).pop() {
        Some((reference, 0, end)) if end == text.len() && reference.column != "*" => Some(reference),
        _ => None,
    }
}

/// Returns the text with `alias` removed before each column.
pub(crate) fn without_alias(text: &str, alias: &str) -> String {
    let mut rest = text.to_owned();
    for (reference, start, end) in places(text).into_iter().rev() {
        if reference.alias == alias {
            let column = tokens(&text[start..end]).last().map_or(start, |placed| start + placed.start);
            rest.replace_range(start..column, "");
        }
    }
    rest
}

/// Returns each column reference with its start and end in the text.
fn places(text: &str) -> Vec<(Reference, usize, usize)> {
    let tokens = tokens(text);
    let sign = |index: Option<usize>, byte| {
        index
            .and_then(|index| tokens.get(index))
            .is_some_and(|placed: &Placed<'_>| placed.token.is_sign(byte))
    };
    let mut found = Vec::new();
    for (index, part) in tokens.windows(3).enumerate() {
        let [alias, point, column] = part else { continue };
        let is_column = column.token.is_name() || column.token.is_sign(b'*');
        if !(alias.token.is_name() && point.token.is_sign(b'.') && is_column) {
            continue;
        }
        let before = index.checked_sub(1);
        let collation = before.is_some_and(|before| tokens[before].token.is_word(b"collate"));
        let is_type = sign(before, b':') || sign(before, b'.') || collation;
        if is_type || sign(Some(index + 3), b'(') || sign(Some(index + 3), b'.') {
            continue;
        }
        let name = |placed: &Placed<'_>| unquoted(&text[placed.start..placed.end]);
        let reference = Reference { alias: name(alias), column: name(column) };
        found.push((reference, alias.start, column.end));
    }
    found
}

/// Functions whose literals belong to the expression rather than to a single statement, and types with a modifier.
const FIXED: &[&[u8]] = &[
    b"bit",
    b"character",
    b"coalesce",
    b"date_part",
    b"date_trunc",
    b"interval",
    b"jsonb_extract_path",
    b"jsonb_extract_path_text",
    b"left",
    b"lpad",
    b"nullif",
    b"numeric",
    b"replace",
    b"right",
    b"round",
    b"rpad",
    b"substr",
    b"substring",
    b"time",
    b"timestamp",
    b"timezone",
    b"to_char",
    b"to_tsvector",
    b"trunc",
    b"varying",
];

/// Returns true if an expression contains a literal that is likely to differ from statement to statement, such as
/// `abs(a - 5)`. Literals of JSON paths, of CASE and of the functions in [`FIXED`] don't count.
pub(crate) fn has_value(text: &str) -> bool {
    let tokens = tokens(text);
    if tokens.iter().any(|placed| placed.token.is_word(b"case")) {
        return false;
    }
    // For each open parenthesis, whether it belongs to a fixed function.
    let mut calls: Vec<bool> = Vec::new();
    for (index, placed) in tokens.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| &tokens[before]);
        if placed.token.is_sign(b'(') {
            let is_fixed = before.is_some_and(|name| FIXED.iter().any(|word| name.token.is_word(word)));
            calls.push(is_fixed);
        } else if placed.token.is_sign(b')') {
            calls.pop();
        }
        let is_literal =
            matches!(placed.token.kind, TokenKind::Text | TokenKind::Number | TokenKind::Parameter);
        let is_path = before.is_some_and(|before| {
            let operator = text[..before.end].trim_end();
            operator.ends_with("->") && !operator.ends_with("<->")
                || operator.ends_with("->>")
                || operator.ends_with("#>")
                || operator.ends_with("#>>")
        });
        let is_zone = before.is_some_and(|before| before.token.is_word(b"zone"));
        if is_literal && !is_path && !is_zone && !calls.contains(&true) {
            return true;
        }
    }
    false
}

/// Returns the text without white space and without parentheses that enclose the whole text.
pub(crate) fn without_parentheses(text: &str) -> &str {
    let mut text = text.trim();
    loop {
        let tokens = tokens(text);
        let [first, inner @ .., last] = tokens.as_slice() else { return text };
        let enclosed = first.token.is_sign(b'(')
            && last.token.is_sign(b')')
            && last.end == text.len()
            && inner.iter().all(|placed| placed.depth > 0)
            && inner.iter().filter(|placed| placed.depth == 1).all(|placed| !placed.token.is_sign(b')'));
        if !enclosed {
            return text;
        }
        text = text[first.end..last.start].trim();
    }
}

/// Splits a list at the commas outside of parentheses and brackets.
pub(crate) fn list(text: &str) -> Vec<&str> {
    let mut items = Vec::new();
    let mut start = 0;
    for placed in tokens(text) {
        if placed.depth == 0 && placed.token.is_sign(b',') {
            items.push(text[start..placed.start].trim());
            start = placed.end;
        }
    }
    items.push(text[start..].trim());
    items
}

/// Returns all tokens that start and end at character boundaries.
fn tokens(text: &str) -> Vec<Placed<'_>> {
    let mut lexer = SqlLexer::new(text.as_bytes(), true);
    let mut depth = 0_usize;
    let mut tokens = Vec::new();
    while let Some(token) = lexer.token() {
        let end = lexer.position();
        let start = end - token.text.len();
        let opens = token.is_sign(b'(') || token.is_sign(b'[');
        let closes = token.is_sign(b')') || token.is_sign(b']');
        depth += usize::from(opens);
        if text.is_char_boundary(start) && text.is_char_boundary(end) {
            tokens.push(Placed { token, start, end, depth });
        }
        depth = depth.saturating_sub(usize::from(closes));
    }
    tokens
}

/// Returns the words and signs outside of parentheses, with their positions. Also works for texts other than
/// conditions.
pub(crate) fn outer_words(text: &str) -> Vec<(&str, usize)> {
    tokens(text)
        .into_iter()
        .filter(|placed| placed.depth == 0)
        .map(|placed| (&text[placed.start..placed.end], placed.start))
        .collect()
}

#[cfg(test)]
mod tests;
