//! Parses YAML into a tree of texts, resolving aliases and merge keys (`<<`).
//!
//! Scalars keep the text in the file, so `version: 3.10` isn't a number here. A limit on nodes stops a file whose
//! aliases multiply.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle};

/// Maximum number of nodes in a document, including the copies made for aliases.
const MAX_NODES: usize = 200_000;
/// Maximum nesting depth of a document.
const MAX_DEPTH: usize = 64;

/// A value in a YAML document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    Null,
    Text(String),
    List(Vec<Node>),
    /// Entries in file order. If a key occurs more than once, the last entry wins.
    Map(Vec<(String, Node)>),
}

impl Node {
    /// Returns the value of `key` if this node is a map that contains `key`.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        self.entries().iter().rev().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Returns a map's entries. For other nodes, returns an empty slice.
    pub(super) fn entries(&self) -> &[(String, Self)] {
        if let Self::Map(entries) = self { entries } else { &[] }
    }

    /// Returns a scalar's text.
    pub(super) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// Returns a list's items. For null, returns an empty slice, and for other nodes, the node itself as
    /// the only item.
    pub(super) fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            Self::Null => &[],
            _ => std::slice::from_ref(self),
        }
    }

    /// Returns names and values from a map or from a list of `NAME=VALUE` items. The value is `None` if the file only
    /// has the name.
    pub(super) fn pairs(&self) -> Vec<(String, Option<String>)> {
        if let Self::Map(entries) = self {
            return entries
                .iter()
                .map(|(name, value)| (name.clone(), value.text().map(str::to_owned)))
                .collect();
        }
        let pair = |text: &str| match text.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (text.to_owned(), None),
        };
        self.items().iter().filter_map(Self::text).map(pair).collect()
    }

    /// Returns a copy whose texts have been passed through `replace`, except for the keys of maps.
    pub(super) fn map_texts(&self, replace: &impl Fn(&str) -> String) -> Self {
        match self {
            Self::Null => Self::Null,
            Self::Text(text) => Self::Text(replace(text)),
            Self::List(items) => Self::List(items.iter().map(|item| item.map_texts(replace)).collect()),
            Self::Map(entries) => Self::Map(
                entries.iter().map(|(key, value)| (key.clone(), value.map_texts(replace))).collect(),
            ),
        }
    }

    fn size(&self) -> usize {
        1 + match self {
            Self::Null | Self::Text(_) => 0,
            Self::List(items) => items.iter().map(Self::size).sum(),
            Self::Map(entries) => entries.iter().map(|(_, value)| value.size()).sum(),
        }
    }
}

/// A list or map that the parser hasn't finished yet.
struct Open {
    /// Alias ID of this node. 0 means that the node has no anchor.
    anchor: usize,
    is_map: bool,
    /// Finished child nodes. In a map, keys and values alternate.
    nodes: Vec<Node>,
}

impl Open {
    fn close(self) -> Node {
        if !self.is_map {
            return Node::List(self.nodes);
        }
        let mut entries = Vec::new();
        let mut merged = Vec::new();
        let mut nodes = self.nodes.into_iter();
        while let (Some(key), Some(value)) = (nodes.next(), nodes.next()) {
            match key {
                Node::Text(key) if key == "<<" => {
                    merged.extend(value.items().iter().flat_map(|item| item.entries().to_vec()));
                }
                Node::Text(key) => entries.push((key, value)),
                _ => {}
            }
        }
        for (key, value) in merged {
            if entries.iter().all(|(known, _)| *known != key) {
                entries.push((key, value));
            }
        }
        Node::Map(entries)
    }
}

/// Parses the first document in `text`. An empty text becomes [`Node::Null`].
///
/// # Errors
/// Returns one line that describes the error and its position.
pub(super) fn parse(text: &str) -> Result<Node, String> {
    let mut open: Vec<Open> = Vec::new();
    let mut anchors: HashMap<usize, Node> = HashMap::new();
    let mut count = 0;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let why: String = error.info().chars().filter(|character| !character.is_control()).collect();
            format!("line {}: {why}", error.marker().line())
        })?;
        let line = span.start.line();
        let (node, anchor) = match event {
            Event::DocumentEnd | Event::StreamEnd => break,
            Event::Nothing | Event::StreamStart | Event::DocumentStart(_) => continue,
            Event::Alias(anchor) => {
                let node = anchors.get(&anchor).cloned();
                (node.ok_or_else(|| format!("line {line}: an alias within its own anchor"))?, 0)
            }
            Event::Scalar(text, style, anchor, _) => (scalar(&text, style), anchor),
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                if open.len() == MAX_DEPTH {
                    return Err(format!("line {line}: more than {MAX_DEPTH} levels"));
                }
                let is_map = matches!(event, Event::MappingStart(..));
                open.push(Open { anchor, is_map, nodes: Vec::new() });
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(closed) = open.pop() else { break };
                let anchor = closed.anchor;
                (closed.close(), anchor)
            }
        };
        count += node.size();
        if count > MAX_NODES {
            return Err(format!("line {line}: more than {MAX_NODES} values"));
        }
        if anchor != 0 {
            anchors.insert(anchor, node.clone());
        }
        match open.last_mut() {
            Some(parent) => parent.nodes.push(node),
            None => return Ok(node),
        }
    }
    Ok(Node::Null)
}

fn scalar(text: &str, style: ScalarStyle) -> Node {
    let is_null = style == ScalarStyle::Plain && ["", "~", "null", "Null", "NULL"].contains(&text);
    if is_null { Node::Null } else { Node::Text(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(text: &str) -> Node {
        Node::Text(text.to_owned())
    }

    #[test]
    fn scalars_stay_texts_and_merges_are_resolved() {
        let node = parse(
            "base: &base\n  a: 3.10\n  b: 'null'\n  c:\nrest:\n  <<: *base\n  a: yes\nlist:\n- <<: [*base, {d: 1}]\n- *base\n",
        )
        .unwrap();
        let rest = node.get("rest").unwrap();
        assert_eq!((rest.get("a"), rest.get("b")), (Some(&text("yes")), Some(&text("null"))));
        assert_eq!(rest.get("c"), Some(&Node::Null));
        assert_eq!(node.get("list").unwrap().items()[0].get("d"), Some(&text("1")));
        assert_eq!(node.get("list").unwrap().items()[1].get("a"), Some(&text("3.10")));
        assert_eq!(parse("").unwrap(), Node::Null);
        assert_eq!(parse("# nothing\n").unwrap(), Node::Null);
    }

    #[test]
    fn malformed_yaml_names_its_line() {
        for (yaml, line) in [("a: [1\nb: 2\n", "line "), ("a: b: c\n", "line 1: "), ("a: *x\n", "line 1: ")] {
            let error = parse(yaml).unwrap_err();
            assert!(error.starts_with(line) && error.lines().count() == 1, "{yaml}: {error}");
        }
        let bomb = (1..12).fold("a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned(), |text, n| {
            let last = n - 1;
            text + &format!("a{n}: &a{n} [{}]\n", vec![format!("*a{last}"); 9].join(", "))
        });
        assert!(parse(&bomb).unwrap_err().contains("values"));
        assert!(parse(&"[".repeat(100_000)).is_err());
        assert!(parse(&"- ".repeat(100_000)).is_err());
        assert!(parse(&"? ".repeat(100_000)).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_an_error(yaml in "([-?:,*&!|>'\"%@`#{}\\[\\]<~a-c0 \\n\\t\r]|<<|é|\u{feff}){0,200}") {
            if let Err(error) = parse(&yaml) {
                prop_assert!(error.lines().count() == 1, "{error}");
            }
        }
    }
}
