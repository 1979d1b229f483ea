//! Lays out text for terminals and escapes it for Markdown, HTML and CSV.

/// A column's alignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alignment {
    Left,
    Right,
}

/// Code points that don't take up a column: combining marks, joiners, directional marks and variation selectors. Code
/// points in [`DIRECTIONS`] take up one column, because [`plain`] replaces them.
const ZERO_WIDTH: [(char, char); 11] = [
    ('\u{0300}', '\u{036f}'),
    ('\u{0483}', '\u{0489}'),
    ('\u{0591}', '\u{05bd}'),
    ('\u{064b}', '\u{065f}'),
    ('\u{1ab0}', '\u{1aff}'),
    ('\u{1dc0}', '\u{1dff}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2060}', '\u{2064}'),
    ('\u{20d0}', '\u{20ff}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
];

/// Code points that take up two columns: East Asian wide and full-width characters, and emoji.
const DOUBLE_WIDTH: [(char, char); 12] = [
    ('\u{1100}', '\u{115f}'),
    ('\u{2e80}', '\u{303e}'),
    ('\u{3041}', '\u{a4cf}'),
    ('\u{ac00}', '\u{d7a3}'),
    ('\u{f900}', '\u{faff}'),
    ('\u{fe30}', '\u{fe6f}'),
    ('\u{ff00}', '\u{ff60}'),
    ('\u{ffe0}', '\u{ffe6}'),
    ('\u{1f300}', '\u{1f64f}'),
    ('\u{1f680}', '\u{1f6ff}'),
    ('\u{1f900}', '\u{1f9ff}'),
    ('\u{20000}', '\u{3fffd}'),
];

/// Returns how many columns `text` takes up on a terminal.
///
/// The result is correct for words and names in any script, but too large for joined emoji sequences.
///
/// Source: Unicode Standard Annex 11, as in Markus Kuhn's wcwidth.c (2007), and the Unicode blocks of emoji.
#[must_use]
pub fn width(text: &str) -> usize {
    let within = |table: &[(char, char)], c| table.iter().any(|(first, last)| (*first..=*last).contains(&c));
    text.chars()
        .map(|c| match c {
            c if c.is_ascii() => 1,
            c if within(&ZERO_WIDTH, c) => 0,
            c if within(&DOUBLE_WIDTH, c) => 2,
            _ => 1,
        })
        .sum()
}

/// Pads `text` with spaces to `columns` columns.
pub(crate) fn pad(text: &str, columns: usize, alignment: Alignment) -> String {
    let blanks = " ".repeat(columns.saturating_sub(width(text)));
    match alignment {
        Alignment::Left => format!("{text}{blanks}"),
        Alignment::Right => format!("{blanks}{text}"),
    }
}

/// A no-break space. [`hang`] never breaks a line here and prints it as an ordinary space.
pub(crate) const NO_BREAK: &str = "\u{a0}";

/// Splits `text` into lines of at most `columns` columns, between words where possible. Returns at least one line.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    // A character can take up two columns, so use at least two.
    let columns = columns.max(2);
    let (mut lines, mut line) = (Vec::new(), String::new());
    for mut word in plain(text).split(' ').filter(|word| !word.is_empty()) {
        if !line.is_empty() && width(&line) + 1 + width(word) <= columns {
            line.push(' ');
            line.push_str(word);
            continue;
        }
        if !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        while let Some(end) = end_of(word, columns) {
            lines.push(word[..end].to_owned());
            word = &word[end..];
        }
        word.clone_into(&mut line);
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines.iter().map(|line| line.replace(NO_BREAK, " ")).collect()
}

/// Returns how many bytes of `text` fit into `columns` columns, or `None` if the whole text fits.
fn end_of(text: &str, columns: usize) -> Option<usize> {
    let mut taken = 0;
    let (end, _) = text.char_indices().find(|(at, _)| {
        let next = text[*at..].chars().next();
        taken += next.map_or(0, |next| width(next.encode_utf8(&mut [0; 4])));
        taken > columns
    })?;
    Some(end)
}

/// Shortens `text` to one line of at most `columns` columns. An ellipsis marks the cut.
#[must_use]
pub fn cut(text: &str, columns: usize) -> String {
    let text = plain(text);
    if end_of(&text, columns).is_none() {
        return text;
    }
    let end = end_of(&text, columns.saturating_sub(1)).unwrap_or(text.len());
    text[..end].trim_end().to_owned() + "…"
}

/// Formats `text` after `lead`, indenting the following lines by the width of `lead`. Lines have at most `columns`
/// columns. Words that are longer continue on the next line.
#[must_use]
pub fn hang(lead: &str, text: &str, columns: usize) -> String {
    let margin = width(lead);
    let lines = wrap(text, columns.saturating_sub(margin));
    let leads = std::iter::once(lead.to_owned()).chain(std::iter::repeat(" ".repeat(margin)));
    let lines = leads.zip(lines).map(|(lead, line)| format!("{}\n", format!("{lead}{line}").trim_end()));
    lines.collect()
}

/// Replaces control characters with spaces, and characters that change the writing direction with U+FFFD. The result
/// is a single line that can't affect the terminal or the surrounding text.
pub(crate) fn plain(text: &str) -> String {
    text.replace(|c: char| c.is_control() || "\u{2028}\u{2029}".contains(c), " ")
        .replace(DIRECTIONS, "\u{fffd}")
}

/// Embeddings, overrides and isolates. Their effect on the writing direction would extend beyond their cell. Source:
/// Unicode Standard Annex 9, 2.
const DIRECTIONS: [char; 9] = [
    '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}', '\u{202e}', '\u{2066}', '\u{2067}', '\u{2068}',
    '\u{2069}',
];

/// Escapes `text` as a single line of Markdown. Characters for emphasis, code, links, HTML and table bars appear
/// literally.
///
/// Source: GitHub Flavored Markdown 0.29, sections 4.10 and 6.1.
#[must_use]
pub fn markdown(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in plain(text).chars() {
        if "\\`*_[<|~&".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Escapes `text` for HTML elements and quoted attributes.
#[must_use]
pub fn html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in plain(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Formats a CSV line, including its line feed. Fields are only quoted if necessary.
///
/// Source: RFC 4180, except that lines end with a line feed alone.
pub(crate) fn csv(fields: &[impl AsRef<str>]) -> String {
    let fields: Vec<String> = fields
        .iter()
        .map(AsRef::as_ref)
        .map(|field| {
            if field.contains([',', '"', '\n', '\r']) {
                format!("\"{}\"", field.replace('"', "\"\""))
            } else {
                field.to_owned()
            }
        })
        .collect();
    fields.join(",") + "\n"
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Parses CSV according to RFC 4180. It shares no code with [`csv`], so it can check that function's output.
    pub(crate) fn read_csv(text: &str) -> Vec<Vec<String>> {
        let (mut lines, mut line, mut field, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            match c {
                '"' if quoted && rest.peek() == Some(&'"') => field.extend(rest.next()),
                '"' => quoted = !quoted,
                ',' if !quoted => line.push(std::mem::take(&mut field)),
                '\n' if !quoted => {
                    line.push(std::mem::take(&mut field));
                    lines.push(std::mem::take(&mut line));
                }
                c => field.push(c),
            }
        }
        assert!(!quoted && line.is_empty() && field.is_empty(), "unfinished: {text:?}");
        lines
    }

    #[test]
    fn width_counts_terminal_columns() {
        assert_eq!(["", "abc", "µs", "1.15 ×", "–"].map(width), [0, 3, 2, 6, 1]);
        assert_eq!(["日本", "e\u{301}", "한글", "🐘", "ｘ"].map(width), [4, 1, 4, 2, 2]);
        assert_eq!(pad("日本", 5, Alignment::Right), " 日本");
        assert_eq!(pad("too long", 3, Alignment::Left), "too long");
    }

    #[test]
    fn long_text_wraps_with_hanging_indent() {
        assert_eq!(hang("1. ", "one two three four", 10), "1. one two\n   three\n   four\n");
        assert_eq!(hang("1. ", "incomprehensibilities", 10), "1. incompr\n   ehensib\n   ilities\n");
        assert_eq!(hang("Disk  ", "", 10), "Disk\n");
        assert_eq!(hang("1. ", "one 2\u{a0}ms", 9), "1. one\n   2 ms\n");
    }

    #[test]
    fn cut_text_ends_with_ellipsis() {
        assert_eq!(["short", "too long", "日本語"].map(|text| cut(text, 5)), ["short", "too…", "日本…"]);
        assert_eq!(cut("a\nb", 5), "a b");
    }

    #[test]
    fn plain_removes_escape_sequences() {
        assert_eq!(plain("a\u{1b}[31mb\nc\td\u{2028}e"), "a [31mb c d e");
        assert_eq!(plain("a\u{202e}b \u{5d0}\u{2066}"), "a\u{fffd}b \u{5d0}\u{fffd}");
    }

    #[test]
    fn markdown_escapes_special_characters() {
        assert_eq!(markdown("a|b\\|c\n<i>*x*_y_"), r"a\|b\\\|c \<i>\*x\*\_y\_");
    }

    #[test]
    fn html_escapes_special_characters() {
        assert_eq!(html("<a href=\"x\">&\u{1b}'"), "&lt;a href=&quot;x&quot;&gt;&amp; '");
    }

    #[test]
    fn csv_quotes_only_special_fields() {
        assert_eq!(
            csv(&["plain", "a,b", "say \"hi\"", "", "two\nlines"]),
            "plain,\"a,b\",\"say \"\"hi\"\"\",,\"two\nlines\"\n"
        );
    }

    #[test]
    fn characters_of_a_plain_text_keep_their_width() {
        for c in '\0'..=char::MAX {
            let text = c.to_string();
            assert_eq!(width(&text), width(&plain(&text)), "{c:?}");
        }
    }

    proptest! {
        #[test]
        fn csv_parser_reads_back_fields(fields in prop::collection::vec("[a-z,\"\r\n 日;]{0,8}", 1..6)) {
            prop_assert_eq!(read_csv(&csv(&fields)), [fields]);
        }

        #[test]
        fn padded_text_has_requested_width(text in any::<String>(), columns in 0_usize..40) {
            let padded = pad(&text, columns, Alignment::Right);
            prop_assert_eq!(width(&padded), width(&text).max(columns));
        }

        #[test]
        fn wrapped_lines_fit_and_keep_all_words(text in any::<String>(), columns in 2_usize..60) {
            let lines = wrap(&text, columns);
            prop_assert!(lines.iter().all(|line| width(line) <= columns), "{:?}", lines);
            let letters = |text: &str| text.replace([' ', '\u{a0}'], "");
            prop_assert_eq!(letters(&lines.concat()), letters(&plain(&text)));
            prop_assert!(width(&cut(&text, columns)) <= columns);
        }

        #[test]
        fn escaped_markdown_stays_in_one_cell(text in any::<String>()) {
            let escaped = markdown(&text);
            prop_assert!(!escaped.contains(char::is_control));
            let unescaped = escaped.replace("\\\\", "").replace("\\|", "");
            prop_assert!(!unescaped.contains('|'));
        }
    }
}
