//! Formats reports as HTML.
//!
//! An HTML report is a single page that loads no fonts, scripts or style sheets, so it works offline. Users can attach
//! it to an email or save it as a build artifact. See [`crate::page`] for its frame.

use crate::text::{Alignment, html};
use crate::tile::Tile;
use crate::{Cell, Distribution, Finding, Layer, Plot, Report, Table, page};

/// Maximum number of columns in a table that fits on a phone.
const NARROW_COLUMNS: usize = 3;
/// Number of tiles that fill a row on a wide page.
const TILES_IN_A_ROW: usize = 6;
/// Maximum length of a text that doesn't need a wide column, in characters.
const SHORT_TEXT: usize = 16;
/// Maximum length of a statement that a page shows in full, in characters.
const SHORT_STATEMENT: usize = 60;

impl Report {
    /// Formats the report as an HTML page. `figure` is HTML to insert after the findings, for example an inline SVG.
    /// The text can be empty.
    #[must_use]
    pub fn to_html(&self, figure: &str) -> String {
        let facts: Vec<String> = self
            .environment
            .iter()
            .map(|(key, value)| format!("<p>{}: {}</p>\n", html(key), html(value)))
            .collect();
        let mut body =
            format!("<header>\n<h1>{}</h1>\n{}</header>\n<main>\n", html(&self.title), facts.concat());
        if !self.tiles.is_empty() {
            let tiles: String = self.tiles.iter().map(Tile::to_html).collect();
            let few = if self.tiles.len() < TILES_IN_A_ROW { " few" } else { "" };
            body += &format!("<dl class=\"tiles{few}\">\n{tiles}</dl>\n");
        }
        if !self.findings.is_empty() {
            let findings: String = self.findings.iter().map(Finding::to_html).collect();
            body += &format!("<h2>Findings</h2>\n<ol class=\"findings\">\n{findings}</ol>\n");
        }
        if !self.layers.is_empty() {
            let layers: String = self.layers.iter().map(Layer::to_html).collect();
            body += &format!("<h2>Layers</h2>\n<div class=\"cards\">\n{layers}</div>\n");
        }
        body += figure;
        body.extend(self.plots.iter().map(Plot::to_html));
        body.extend(self.distributions.iter().map(Distribution::to_html));
        body.extend(self.tables.iter().map(Table::to_html));
        if !self.notes.is_empty() {
            let item = |note: &String| format!("<li>{}</li>\n", html(note));
            let notes: String = self.notes.iter().map(item).collect();
            body += &format!("<h2>Notes</h2>\n<ul class=\"card notes\">\n{notes}</ul>\n");
        }
        page::of_report(&self.title, &(body + "</main>\n"))
    }
}

impl Layer {
    fn to_html(&self) -> String {
        let facts = self.known_facts().map(|(name, value)| {
            let [name, value] = [name, &value.to_human_text()].map(html);
            format!("<div><dt>{name}</dt><dd>{value}</dd></div>\n")
        });
        let facts: String = facts.collect();
        let facts = if facts.is_empty() { facts } else { format!("<dl class=\"facts\">\n{facts}</dl>\n") };
        let [name, verdict] = [self.name(), self.verdict()].map(html);
        format!("<section class=\"card\"><h3>{name}</h3>\n<p>{verdict}</p>\n{facts}</section>\n")
    }
}

impl Finding {
    fn to_html(&self) -> String {
        let gain = self
            .gain
            .as_ref()
            .map(|gain| format!("<p class=\"gain\">Gain: {}.</p>\n", html(&gain.to_string())));
        let [name, evidence, remedy] = [&self.name, &self.evidence, &self.remedy].map(|text| html(text));
        format!(
            "<li class=\"card\"><h3>{name}</h3>\n{}<p>{evidence}</p>\n<p class=\"remedy\">{remedy}</p></li>\n",
            gain.unwrap_or_default()
        )
    }
}

impl Cell {
    /// Formats the cell as a `td` element. `label` is the column's title, which is shown on screens that are too
    /// narrow for columns.
    fn to_html(&self, label: &str, alignment: Alignment) -> String {
        let text = html(&self.to_human_text());
        let (class, content) = match self {
            Self::Statement(_) if text.chars().count() <= SHORT_STATEMENT => {
                ("sql", format!("<div><code>{text}</code></div>"))
            }
            Self::Statement(_) => {
                ("sql", format!("<div><details><summary><code>{text}</code></summary></details></div>"))
            }
            Self::Missing if alignment == Alignment::Right => ("right nil", text),
            Self::Missing => ("nil", text),
            _ if alignment == Alignment::Right => ("right", text),
            _ if text.chars().count() > SHORT_TEXT => ("long", text),
            _ => ("", text),
        };
        let value = match self {
            Self::Quantity(quantity) => format!(" data-value=\"{}\"", quantity.value),
            Self::Text(_) | Self::Statement(_) | Self::Missing => String::new(),
        };
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        format!("<td{class} data-label=\"{}\"{value}>{content}</td>", html(label))
    }
}

impl Table {
    /// Formats the table and its title as HTML.
    #[must_use]
    pub fn to_html(&self) -> String {
        let head = self.columns.iter().map(|column| {
            let class = if column.alignment == Alignment::Right { " class=\"right\"" } else { "" };
            format!("<th scope=\"col\"{class}>{}</th>", html(&column.title))
        });
        let row = |row: &Vec<Cell>| {
            let cells = row.iter().zip(&self.columns);
            let cells = cells.map(|(cell, column)| cell.to_html(&column.title, column.alignment));
            format!("<tr>{}</tr>\n", cells.collect::<String>())
        };
        let has_statements = self.rows.iter().flatten().any(|cell| matches!(cell, Cell::Statement(_)));
        let stack = if has_statements || self.columns.len() > NARROW_COLUMNS { " stack" } else { "" };
        let remark = self.remark.as_ref().map(|remark| format!("<p class=\"empty\">{}</p>\n", html(remark)));
        let remark = remark.unwrap_or_default();
        let table = if self.rows.is_empty() {
            if remark.is_empty() {
                "<p class=\"empty\">Nothing was seen.</p>\n".to_owned()
            } else {
                String::new()
            }
        } else {
            let (head, rows) = (head.collect::<String>(), self.rows.iter().map(row).collect::<String>());
            format!(
                "<div class=\"scroll\"><table class=\"rows{stack}\">\n<thead><tr>{head}</tr></thead>\n\
                 <tbody>\n{rows}</tbody>\n</table></div>\n"
            )
        };
        format!("<h2>{}</h2>\n<div class=\"card\">{remark}{table}</div>\n", html(&self.title))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::tests::finding;
    use crate::layer::tests::disk;
    use crate::table::tests::commits;

    #[test]
    fn html_page_is_complete_and_self_contained() {
        let mut report = Report::new("<Settings>");
        report.add_environment("disk", "a & b");
        report.add_layer(disk());
        report.add_findings([finding("commits wait", Some(4.0))]);
        report.add_table(commits());
        report.add_notes(["loses \"data\""]);
        let page = report.to_html("<svg></svg>");
        for part in [
            "<title>&lt;Settings&gt;</title>",
            "<h3>Device</h3>\n<p>It flushes.</p>",
            "<div><dt>size</dt><dd>2.00 TB</dd></div>",
            "<h3>commits wait</h3>\n<p class=\"gain\">Gain: commits about 4.00 × as fast, predicted.</p>\n<p>So it is.</p>",
            "<svg></svg>",
            "<th scope=\"col\">settings</th><th scope=\"col\" class=\"right\">median</th>",
            "<td data-label=\"settings\">日本 | off</td><td class=\"right\" data-label=\"median\" data-value=\"0.000218\">218 µs</td>",
            "<li>loses &quot;data&quot;</li>",
            "<p>disk: a &amp; b</p>",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        for foreign in ["://", " src=", " href=", "@import", "url(", " style=", " onclick="] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert!(!Report::new("x").to_html("").contains("<h2>"));
    }
}
