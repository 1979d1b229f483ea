//! Represents tiles: the key figures that summarize a report, at the top of its page.

use crate::text::html;
use crate::{Cell, Quantity};

/// A number with a label and a remark, as on the live page. Only HTML pages show tiles, because a report's layers
/// contain the same numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Tile {
    label: String,
    value: Cell,
    note: String,
}

impl Tile {
    /// Creates a tile. `note` explains in a few words what the number means.
    #[must_use]
    pub fn new(
        label: impl Into<String>,
        value: impl Into<Option<Quantity>>,
        note: impl Into<String>,
    ) -> Self {
        Self { label: label.into(), value: value.into().into(), note: note.into() }
    }

    pub(crate) fn to_html(&self) -> String {
        let text = self.value.to_human_text();
        let (number, unit) = text.split_once(' ').unwrap_or((&text, ""));
        let [label, number, unit, note] = [&*self.label, number, unit, &*self.note].map(html);
        let unit = if unit.is_empty() { unit } else { format!("<small>{unit}</small>") };
        format!(
            "<div class=\"tile\"><dt>{label}</dt><dd class=\"number\">{number}{unit}</dd><dd class=\"note\">{note}</dd></div>\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unit;

    #[test]
    fn tile_separates_number_and_unit() {
        let tile = Tile::new("In <it>", Quantity::new(0.25, Unit::Seconds), "25 % of it");
        let expected = "<dt>In &lt;it&gt;</dt><dd class=\"number\">250<small>ms</small></dd><dd class=\"note\">25 % of it</dd>";
        assert!(tile.to_html().contains(expected), "{}", tile.to_html());
        assert!(Tile::new("Tests", None, "").to_html().contains("<dd class=\"number\">–</dd>"));
    }
}
