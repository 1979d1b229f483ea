//! Lays out tables for a terminal.
//!
//! A table that is too wide first wraps its texts within their columns. If its numbers alone are too wide, each row
//! becomes a list of titles and values.

use crate::text::{self, Alignment};
use crate::{Cell, Table};

/// Minimum width of a column with wrapped texts.
const MIN_TEXT_WIDTH: usize = 12;
/// Gap between columns.
const GAP: &str = "  ";

impl Table {
    /// Formats the table and its title with lines of at most `columns` columns.
    pub(crate) fn to_text(&self, columns: usize) -> String {
        let mut parts = vec![text::hang("", &self.title, columns)];
        parts.extend(self.remark.as_ref().map(|remark| text::hang("", remark, columns)));
        if self.is_remark() {
            return parts.join("\n");
        }
        let head = self.columns.iter().map(|column| text::plain(&column.title)).collect();
        let read = |row: &Vec<Cell>| row.iter().map(|cell| text::plain(&cell.to_human_text())).collect();
        let lines: Vec<Vec<String>> = std::iter::once(head).chain(self.rows.iter().map(read)).collect();
        parts.push(match self.widths(&lines, columns) {
            Some(widths) => self.side_by_side(&lines, &widths),
            None => row_by_row(&lines, columns),
        });
        parts.join("\n")
    }

    /// Returns the width of each column, or `None` if the table is too wide even with wrapped texts.
    fn widths(&self, lines: &[Vec<String>], columns: usize) -> Option<Vec<usize>> {
        let widest = |index: usize| lines.iter().map(|line| text::width(&line[index])).max().unwrap_or(0);
        let mut widths: Vec<usize> = (0..self.columns.len()).map(widest).collect();
        let room = columns.checked_sub(GAP.len() * self.columns.len().saturating_sub(1))?;
        let is_text = |index: usize| self.columns[index].alignment == Alignment::Left;
        for index in (0..widths.len()).filter(|index| is_text(*index)) {
            widths[index] = widths[index].min(room);
        }
        while widths.iter().sum::<usize>() > room {
            let texts = widths.iter_mut().enumerate().filter(|(index, _)| is_text(*index));
            let (_, widest) =
                texts.max_by_key(|(_, width)| **width).filter(|(_, width)| **width > MIN_TEXT_WIDTH)?;
            *widest -= 1;
        }
        Some(widths)
    }

    fn side_by_side(&self, lines: &[Vec<String>], widths: &[usize]) -> String {
        let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
        let (head, body) = lines.split_first().expect("there is a header");
        let mut drawing = String::new();
        for line in [head, &rule].into_iter().chain(body) {
            let wrap = |(cell, width): (&String, &usize)| {
                if text::width(cell) <= *width { vec![cell.clone()] } else { text::wrap(cell, *width) }
            };
            let cells: Vec<Vec<String>> = line.iter().zip(widths).map(wrap).collect();
            for place in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
                let cells = cells.iter().zip(widths).zip(&self.columns);
                let padded = cells.map(|((cell, width), column)| {
                    text::pad(cell.get(place).map_or("", String::as_str), *width, column.alignment)
                });
                drawing += padded.collect::<Vec<_>>().join(GAP).trim_end();
                drawing += "\n";
            }
        }
        drawing
    }
}

/// Formats each row as a list of titles and values.
fn row_by_row(lines: &[Vec<String>], columns: usize) -> String {
    let (head, body) = lines.split_first().expect("there is a header");
    let widest = head.iter().map(|title| text::width(title)).max().unwrap_or(0);
    let margin = widest.min(columns / 2);
    let row = |row: &Vec<String>| {
        let cells = head.iter().zip(row).filter(|(_, value)| !value.is_empty());
        let cells = cells.map(|(title, value)| {
            let lead = text::pad(&text::cut(title, margin), margin, Alignment::Left) + GAP;
            text::hang(&lead, value, columns)
        });
        cells.collect::<String>()
    };
    body.iter().map(row).collect::<Vec<_>>().join("\n")
}
