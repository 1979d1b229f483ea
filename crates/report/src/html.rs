//! HTML reports.
//!
//! An HTML report is a single page that loads no scripts, fonts or style sheets, so it works offline. Users can attach
//! it to an email or save it as a build artifact.

use crate::svg::PALETTE;
use crate::text::{Alignment, html};
use crate::{Cell, Distribution, Finding, Layer, Plot, Report, Table};

/// The page's style sheet. Colors follow the reader's choice of a light or dark theme. Wide tables and pictures scroll
/// within the page.
const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:15px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.5rem;overflow-wrap:anywhere}h2{font-size:1.1rem;margin-top:2rem}\
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
th,td{padding:.2rem .8rem .2rem 0;text-align:left;vertical-align:top}\
th{border-bottom:1px solid;font-weight:600}.right{text-align:right;white-space:nowrap}\
td:last-child:not(.right){min-width:12rem}\
dt{font-weight:600}dd{margin:0 0 .6rem}dd,li{overflow-wrap:anywhere}.facts,.remedy{opacity:.75}\
svg{display:block;width:100%;min-width:44rem;height:auto}figure{margin:0;max-width:60rem;break-inside:avoid}\
tr,li{break-inside:avoid}h2{break-after:avoid}\
@media print{:root{color-scheme:light}body{margin:0;max-width:none;font-size:10pt}.scroll{overflow-x:visible}\
svg{min-width:0}}";

impl Report {
    /// Formats the report as an HTML page. `figure` is HTML to insert after the findings, for example an inline SVG.
    /// The text can be empty.
    #[must_use]
    pub fn to_html(&self, figure: &str) -> String {
        let title = html(&self.title);
        let mut body = format!("<h1>{title}</h1>\n");
        if !self.layers.is_empty() {
            body += "<dl>\n";
            body.extend(self.layers.iter().map(Layer::to_html));
            body += "</dl>\n";
        }
        if !self.findings.is_empty() {
            body += "<h2>Findings</h2>\n<ol>\n";
            body.extend(self.findings.iter().map(Finding::to_html));
            body += "</ol>\n";
        }
        body += figure;
        body.extend(self.plots.iter().map(Plot::to_html));
        body.extend(self.distributions.iter().map(Distribution::to_html));
        body.extend(self.tables.iter().map(Table::to_html));
        let list = |title: &str, lines: Vec<String>| {
            if lines.is_empty() {
                return String::new();
            }
            let lines: Vec<String> = lines.iter().map(|line| format!("<li>{}</li>\n", html(line))).collect();
            format!("<h2>{title}</h2>\n<ul>\n{}</ul>\n", lines.concat())
        };
        body += &list("Notes", self.notes.clone());
        let facts = self.environment.iter().map(|(key, value)| format!("{key}: {value}"));
        body += &list("Environment", facts.collect());
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
             <style>{STYLE}{PALETTE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
        )
    }
}

impl Layer {
    fn to_html(&self) -> String {
        let [name, verdict, facts] = [self.name(), self.verdict(), &self.known_facts()].map(html);
        format!("<dt>{name}</dt><dd>{verdict} <span class=\"facts\">{facts}</span></dd>\n")
    }
}

impl Finding {
    fn to_html(&self) -> String {
        let gain = self.gain.as_ref().map_or_else(String::new, |gain| format!("Gain: {gain}. "));
        let [name, gain, evidence, remedy] =
            [&self.name, &gain, &self.evidence, &self.remedy].map(|text| html(text));
        format!("<li><b>{name}.</b> {gain}{evidence}<br><span class=\"remedy\">{remedy}</span></li>\n")
    }
}

impl Table {
    /// Formats the table and its title as HTML.
    #[must_use]
    pub fn to_html(&self) -> String {
        let class = |index: usize| match self.columns[index].alignment {
            Alignment::Left => "",
            Alignment::Right => " class=\"right\"",
        };
        let line = |tag: &str, cells: Vec<String>| {
            let cells = cells.iter().enumerate();
            let cells = cells.map(|(index, cell)| format!("<{tag}{}>{}</{tag}>", class(index), html(cell)));
            format!("<tr>{}</tr>\n", cells.collect::<String>())
        };
        let head = line("th", self.columns.iter().map(|column| column.title.clone()).collect());
        let rows: String =
            self.rows.iter().map(|row| line("td", row.iter().map(Cell::to_human_text).collect())).collect();
        format!("<h2>{}</h2>\n<div class=\"scroll\"><table>\n{head}{rows}</table></div>\n", html(&self.title))
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
            "<dt>Device</dt><dd>It flushes. <span class=\"facts\">disk: vda; size: 2.00",
            "<li><b>commits wait.</b> Gain: commits about 4.00 × as fast, predicted. So it is.<br>",
            "<svg></svg>",
            "<th>settings</th><th class=\"right\">median</th>",
            "<td>日本 | off</td><td class=\"right\">218 µs</td><td class=\"right\">54.0 ×</td>",
            "<li>loses &quot;data&quot;</li>",
            "<li>disk: a &amp; b</li>",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        for foreign in ["http", "<script", "@import", "url("] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert!(!Report::new("x").to_html("").contains("<h2>"));
    }
}
