//! Finds the text of the statement that a message refers to.

use std::collections::HashMap;

use crate::frame::{Frame, split_zero};

/// Returns the text of the statement that the last of a client's messages refers to. A message can contain the text, or
/// name a prepared statement or a portal. Any other message refers to the statement of the message before it. Returns
/// an empty text if no message contains it.
pub(crate) fn statement_of_last<'a>(messages: impl Iterator<Item = Frame<'a>>) -> &'a [u8] {
    let (mut prepared, mut portals) = (HashMap::new(), HashMap::new());
    let mut last: &[u8] = &[];
    for Frame { tag, body } in messages {
        let (first, rest) = split_zero(body);
        match tag {
            b'Q' => last = first,
            b'P' => {
                last = split_zero(rest).0;
                prepared.insert(first, last);
            }
            b'B' => {
                last = prepared.get(split_zero(rest).0).copied().unwrap_or_default();
                portals.insert(first, last);
            }
            b'E' => last = portals.get(first).copied().unwrap_or_default(),
            b'D' => {
                last = match first {
                    [b'S', name @ ..] => prepared.get(name),
                    [_, name @ ..] => portals.get(name),
                    [] => None,
                }
                .copied()
                .unwrap_or_default();
            }
            b'F' => last = b"(a function is called)",
            _ => {}
        }
    }
    last
}
