//! Formats a [`DatabaseDiff`] as text for a terminal with at least 60 columns.

use contract::{
    CellValue, DatabaseDiff, Field, FieldChange, NotCompared, ObjectChange, ObjectChangeKind, RowChange,
    RowCounts, SequenceValue, TableDiff,
};
use report::{display_width, grouped};
use server::printable;

/// Minimum width of a line, in columns. A narrower terminal wraps the lines on its own.
const MIN_WIDTH: usize = 60;
/// Indentation of a table's rows and of a row's continuation lines, in columns.
const INDENT: usize = 4;
/// Maximum number of lines per row.
const MAX_ROW_LINES: usize = 4;
/// Maximum width of a value, in columns.
const MAX_VALUE_WIDTH: usize = 48;
/// Minimum width of a value, in columns, even next to a long name.
const MIN_VALUE_WIDTH: usize = 12;
/// Maximum width of a column's name, in terminal columns.
const MAX_NAME_WIDTH: usize = 30;
/// Number of equal characters to show before the first difference between two values.
const CONTEXT_LENGTH: usize = 8;

/// Formats the whole comparison, or returns an empty text if nothing differs. Each line ends with a line feed and has
/// at most `columns` columns.
#[must_use]
pub fn format_diff(diff: &DatabaseDiff, columns: usize) -> String {
    let columns = columns.max(MIN_WIDTH);
    let mut sections = Vec::new();
    if !diff.schema.is_empty() {
        let lines = diff.schema.iter().map(|object| definition(object, columns)).collect();
        sections.push(section("Definitions", lines, diff.schema_left_out));
    }
    if !diff.sequences.is_empty() {
        let lines = diff.sequences.iter().map(|sequence| {
            let change = format!("{} → {}", sequence_text(sequence.old), sequence_text(sequence.new));
            truncate(&format!("  ~ {}: {change}", printable(&sequence.name)), columns)
        });
        sections.push(section("Sequences", lines.collect(), diff.sequences_left_out));
    }
    sections.extend(diff.tables.iter().map(|table| table_text(table, columns)));
    if diff.tables_left_out.tables > 0 {
        let what = if diff.tables_left_out.tables == 1 { "table" } else { "tables" };
        let (count, rows) = (grouped(diff.tables_left_out.tables), diff.tables_left_out.counts);
        sections.push(format!("… and {count} more {what}: {}\n", counts_text(rows)));
    }
    if !diff.not_compared.is_empty() {
        let line = |table: &NotCompared| {
            truncate(&format!("  ! {}: {}", printable(&table.name), printable(&table.reason)), 2 * columns)
        };
        sections.push(section("Not compared", diff.not_compared.iter().map(line).collect(), 0));
    }
    sections.join("\n")
}

/// Summarizes the number of differences, for example "2 tables, 1 sequence".
#[must_use]
pub fn summarize(diff: &DatabaseDiff) -> String {
    let count = |count: usize, one: &str, many: &str| match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        count => Some(format!("{} {many}", grouped(count))),
    };
    let counts = [
        count(diff.tables.len() + diff.tables_left_out.tables, "table", "tables"),
        count(diff.sequences.len() + diff.sequences_left_out, "sequence", "sequences"),
        count(diff.schema.len() + diff.schema_left_out, "definition", "definitions"),
    ];
    counts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn section(title: &str, lines: Vec<String>, left_out: usize) -> String {
    let mut text = format!("{title}\n");
    for line in lines {
        text += &line;
        text += "\n";
    }
    if left_out > 0 {
        text += &format!("  … and {} more\n", grouped(left_out));
    }
    text
}

fn change_sign(what: ObjectChangeKind) -> char {
    match what {
        ObjectChangeKind::Created => '+',
        ObjectChangeKind::Changed => '~',
        ObjectChangeKind::Dropped => '-',
    }
}

fn definition(object: &ObjectChange, columns: usize) -> String {
    let ObjectChange { kind, name, change, old, new, columns: changes } = object;
    let name = if name.is_empty() { kind.clone() } else { format!("{kind} {}", printable(name)) };
    if !changes.is_empty() && old.is_none() && new.is_none() {
        let changes = changes.iter().map(|change| change_text(change, columns));
        return item_lines(change_sign(*change), [name].into_iter().chain(changes).collect(), columns)
            .trim_end()
            .to_owned();
    }
    let head = format!("  {} {name}", change_sign(*change));
    let line = match (old, new, change) {
        (Some(old), Some(new), _) => {
            let room = columns.saturating_sub(display_width(&head) + 5) / 2;
            let (old, new) = (one_line(old), one_line(new));
            let room = room.max(MIN_VALUE_WIDTH);
            let from = if fits(&old, room) && fits(&new, room) { 0 } else { first_difference(&old, &new) };
            format!("{head}: {} → {}", window(&old, from, room), window(&new, from, room))
        }
        (None, Some(new), ObjectChangeKind::Changed) => format!("{head}: none → {}", one_line(new)),
        (Some(old), None, ObjectChangeKind::Changed) => format!("{head}: {} → none", one_line(old)),
        (None, Some(new), _) => format!("{head}: {}", one_line(new)),
        _ => head,
    };
    let mut text = truncate(&line, columns);
    for change in changes {
        let change = truncate(&change_text(change, columns), columns - INDENT);
        text += &format!("\n{:INDENT$}{change}", "");
    }
    text
}

fn sequence_text(value: SequenceValue) -> String {
    let SequenceValue { last_value, is_called } = value;
    if is_called { last_value.to_string() } else { format!("{last_value} (not called)") }
}

/// Joins a definition's lines into a single line.
fn one_line(definition: &str) -> String {
    printable(&definition.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Formats counts in words, for example "2 inserted, 1 deleted".
fn counts_text(counts: RowCounts) -> String {
    let kinds = [(counts.inserted, "inserted"), (counts.updated, "updated"), (counts.deleted, "deleted")];
    let words = kinds.into_iter().filter(|(count, _)| *count > 0);
    words.map(|(count, word)| format!("{} {word}", grouped(count))).collect::<Vec<_>>().join(", ")
}

fn table_text(table: &TableDiff, columns: usize) -> String {
    let keyless = if table.key.is_empty() { " (no primary key: whole rows)" } else { "" };
    let counts = counts_text(table.counts);
    let name = truncate(&printable(&table.table), columns.saturating_sub(display_width(&counts) + 2));
    let mut text = format!("{name}: {counts}");
    if display_width(&text) + display_width(keyless) <= columns {
        text += keyless;
    }
    text += "\n";
    for row in &table.rows {
        text += &row_text(row, columns);
    }
    if table.rows_left_out.total() > 0 {
        text += &format!("  … not shown: {}\n", counts_text(table.rows_left_out));
    }
    text
}

fn row_text(row: &RowChange, columns: usize) -> String {
    let (sign, items) = match row {
        RowChange::Inserted { values } => {
            ('+', values.iter().map(|field| field_text(field, columns)).collect())
        }
        RowChange::Deleted { values } => {
            ('-', values.iter().map(|field| field_text(field, columns)).collect())
        }
        RowChange::Updated { key, columns: changed } => {
            let key = key.iter().map(|field| field_text(field, columns));
            ('~', key.chain(changed.iter().map(|change| change_text(change, columns))).collect())
        }
    };
    item_lines(sign, items, columns)
}

/// Formats `items` after a sign. Uses as many lines as necessary, but at most [`MAX_ROW_LINES`].
fn item_lines(sign: char, items: Vec<String>, columns: usize) -> String {
    let (mut lines, mut line, count) = (Vec::new(), format!("  {sign} "), items.len());
    let mut is_first = true;
    for (at, item) in items.into_iter().enumerate() {
        let item = truncate(&item, columns - INDENT);
        if !is_first && display_width(&line) + 2 + display_width(&item) > columns {
            lines.push(line);
            line = " ".repeat(INDENT);
            is_first = true;
            if lines.len() == MAX_ROW_LINES {
                lines.push(format!("{line}… and {} more columns", count - at));
                return lines.join("\n") + "\n";
            }
        }
        if !is_first {
            line += "  ";
        }
        line += &item;
        is_first = false;
    }
    lines.push(line);
    lines.join("\n") + "\n"
}

fn field_text(field: &Field, columns: usize) -> String {
    let name = truncate(&printable(&field.column), MAX_NAME_WIDTH);
    let room = columns.saturating_sub(INDENT + display_width(&name) + 1);
    format!("{name}={}", value(&field.value, 0, room.clamp(MIN_VALUE_WIDTH, MAX_VALUE_WIDTH)))
}

fn change_text(change: &FieldChange, columns: usize) -> String {
    let name = truncate(&printable(&change.column), MAX_NAME_WIDTH);
    let room = columns.saturating_sub(INDENT + display_width(&name) + 5) / 2;
    let room = room.clamp(MIN_VALUE_WIDTH, MAX_VALUE_WIDTH);
    let (old, new) = (value(&change.old, 0, usize::MAX), value(&change.new, 0, usize::MAX));
    if fits(&old, room) && fits(&new, room) {
        return format!("{name}: {old} → {new}");
    }
    let from = match (&change.old, &change.new) {
        (CellValue::Whole(old), CellValue::Whole(new)) => first_difference(old, new),
        _ => 0,
    };
    format!("{name}: {} → {}", value(&change.old, from, room), value(&change.new, from, room))
}

/// Formats the part of a value that starts at character `from`, in at most `room` columns.
fn value(value: &CellValue, from: usize, room: usize) -> String {
    match value {
        CellValue::Null => "NULL".to_owned(),
        CellValue::Whole(text) if from == 0 => {
            let shown = quoted(text);
            if fits(&shown, room) {
                return shown;
            }
            let length = format!(" ({} chars)", grouped(text.chars().count()));
            window(&shown, 0, room.saturating_sub(length.len())) + &length
        }
        CellValue::Whole(text) => window(&printable(text), from, room),
        CellValue::Part { part, from, length, bytes } => {
            let unit = if *bytes { "bytes" } else { "chars" };
            let length = format!(" ({} {unit})", grouped(*length));
            let prefix = match (*from, *bytes) {
                (0, true) => "\\x",
                (0, false) => "",
                _ => "…",
            };
            let part = if part.is_empty() {
                // The values differ only behind the part that pgfresh has read.
                format!("… after {}", grouped(*from))
            } else {
                format!("{prefix}{}…", printable(part))
            };
            window(&part, 0, room.saturating_sub(length.len())) + &length
        }
    }
}

/// Puts quotes around a text that would be ambiguous without them.
fn quoted(text: &str) -> String {
    let is_plain = |sign: char| sign.is_alphanumeric() || "_.,:;+-*/@#%&()[]{}\\!?<>|~^$\"".contains(sign);
    let is_word = !text.is_empty() && !text.eq_ignore_ascii_case("null") && text.chars().all(is_plain);
    if is_word { text.to_owned() } else { format!("'{}'", printable(&text.replace('\'', "''"))) }
}

fn fits(text: &str, room: usize) -> bool {
    room == usize::MAX || display_width(text) <= room
}

/// Returns a position shortly before the first character that differs between two texts.
fn first_difference(old: &str, new: &str) -> usize {
    let same = old.chars().zip(new.chars()).take_while(|(old, new)| old == new).count();
    same.saturating_sub(CONTEXT_LENGTH)
}

/// Shortens the part of `text` that starts at character `from` to `room` columns. An ellipsis replaces each
/// omitted part.
fn window(text: &str, from: usize, room: usize) -> String {
    let rest: String = text.chars().skip(from).collect();
    let text = if from > 0 { format!("…{rest}") } else { rest };
    truncate(&text, room)
}

/// Shortens `text` to `room` columns. An ellipsis replaces the omitted part.
fn truncate(text: &str, room: usize) -> String {
    if fits(text, room) {
        return text.to_owned();
    }
    let (mut line, mut taken) = (String::new(), 0);
    for sign in text.chars() {
        taken += display_width(sign.encode_utf8(&mut [0; 4]));
        if taken >= room {
            break;
        }
        line.push(sign);
    }
    line + "…"
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use contract::{LeftOut, SequenceChange};

    fn field(column: &str, text: &str) -> Field {
        Field { column: column.into(), value: CellValue::Whole(text.into()) }
    }

    fn orders() -> TableDiff {
        let part = |part: &str| CellValue::Part { part: part.into(), from: 988, length: 1003, bytes: false };
        let behind =
            |length: usize| CellValue::Part { part: String::new(), from: 4000, length, bytes: false };
        TableDiff {
            table: "public.orders".into(),
            key: vec!["id".into()],
            counts: RowCounts { inserted: 1200, updated: 1, deleted: 1 },
            rows: vec![
                RowChange::Updated {
                    key: vec![field("id", "3")],
                    columns: vec![
                        FieldChange {
                            column: "status".into(),
                            old: CellValue::Whole("open".into()),
                            new: CellValue::Null,
                        },
                        FieldChange { column: "body".into(), old: behind(9000), new: behind(9001) },
                        FieldChange {
                            column: "note".into(),
                            old: part("the old end"),
                            new: part("the new end"),
                        },
                    ],
                },
                RowChange::Inserted {
                    values: vec![
                        field("id", "18"),
                        field("note", "NULL"),
                        field("empty", ""),
                        field("said", "it's\n"),
                        Field {
                            column: "picture".into(),
                            value: CellValue::Part {
                                part: "00ff".repeat(100),
                                from: 0,
                                length: 5000,
                                bytes: true,
                            },
                        },
                    ],
                },
                RowChange::Deleted { values: vec![field("id", "9")] },
            ],
            rows_left_out: RowCounts { inserted: 1199, updated: 0, deleted: 0 },
        }
    }

    fn object(
        kind: &str,
        name: &str,
        change: ObjectChangeKind,
        old: Option<&str>,
        new: Option<&str>,
    ) -> ObjectChange {
        let [old, new] = [old, new].map(|text| text.map(Into::into));
        ObjectChange { kind: kind.into(), name: name.into(), change, old, new, columns: Vec::new() }
    }

    fn example() -> DatabaseDiff {
        let log = TableDiff {
            table: "public.log".into(),
            key: Vec::new(),
            counts: RowCounts { inserted: 1, ..RowCounts::default() },
            rows: vec![RowChange::Inserted { values: vec![field("line", "a b")] }],
            rows_left_out: RowCounts::default(),
        };
        DatabaseDiff {
            schema: vec![
                object(
                    "column",
                    "public.orders.note",
                    ObjectChangeKind::Changed,
                    Some("text"),
                    Some("text not null"),
                ),
                object("function", "public.f(integer)", ObjectChangeKind::Changed, None, None),
                object("table", "public.old", ObjectChangeKind::Dropped, Some("owner postgres"), None),
                object("view", "public.v", ObjectChangeKind::Created, None, Some("SELECT 1;")),
            ],
            schema_left_out: 2,
            sequences: vec![SequenceChange {
                name: "public.orders_id_seq".into(),
                old: SequenceValue { last_value: 1, is_called: false },
                new: SequenceValue { last_value: 18, is_called: true },
            }],
            sequences_left_out: 0,
            tables: vec![orders(), log],
            tables_left_out: LeftOut { tables: 3, counts: RowCounts { inserted: 2, updated: 0, deleted: 1 } },
            not_compared: vec![NotCompared {
                name: "public.f".into(),
                reason: "it has partitions on other servers".into(),
            }],
        }
    }

    #[test]
    fn text_lists_definitions_sequences_and_rows() {
        let expected = "\
Definitions
  ~ column public.orders.note: text → text not null
  ~ function public.f(integer)
  - table public.old
  + view public.v: SELECT 1;
  … and 2 more

Sequences
  ~ public.orders_id_seq: 1 (not called) → 18

public.orders: 1,200 inserted, 1 updated, 1 deleted
  ~ id=3  status: open → NULL
    body: … after 4,000 (9,000 chars) → … after 4,000 (9,001 chars)
    note: …the old end… (1,003 chars) → …the new end… (1,003 chars)
  + id=18  note='NULL'  empty=''  said='it''s\\n'
    picture=\\x00ff00ff00ff00ff00ff00ff00ff00f… (5,000 bytes)
  - id=9
  … not shown: 1,199 inserted

public.log: 1 inserted (no primary key: whole rows)
  + line='a b'

… and 3 more tables: 2 inserted, 1 deleted

Not compared
  ! public.f: it has partitions on other servers
";
        assert_eq!(format_diff(&example(), 80), expected);
        assert_eq!(summarize(&example()), "5 tables, 1 sequence, 6 definitions");
    }

    #[test]
    fn empty_diff_has_no_text() {
        assert_eq!(
            (format_diff(&DatabaseDiff::default(), 80), summarize(&DatabaseDiff::default())),
            Default::default()
        );
    }

    #[test]
    fn changed_long_values_show_their_differing_end() {
        let long = "x".repeat(90);
        let value = |end: &str| CellValue::Whole(format!("{long}{end}"));
        let change = FieldChange { column: "a".into(), old: value("old"), new: value("new") };
        assert_eq!(change_text(&change, 80), "a: …xxxxxxxxold → …xxxxxxxxnew");
    }

    #[test]
    fn row_with_many_columns_is_truncated() {
        let values = (0..200).map(|at| field(&format!("column_{at}"), "value")).collect();
        let text = row_text(&RowChange::Inserted { values }, 80);
        assert_eq!(text.lines().count(), MAX_ROW_LINES + 1);
        assert!(text.ends_with("    … and 184 more columns\n"), "{text}");
    }

    fn cell() -> impl Strategy<Value = CellValue> {
        prop_oneof![
            Just(CellValue::Null),
            any::<String>().prop_map(CellValue::Whole),
            "[a-z]{0,200}".prop_map(CellValue::Whole),
            (any::<String>(), 0..9_usize, any::<u32>(), any::<bool>()).prop_map(
                |(part, from, length, bytes)| CellValue::Part { part, from, length: length as usize, bytes }
            ),
        ]
    }

    proptest! {
        #[test]
        fn diff_lines_fit_terminal_without_control_characters(
            table in any::<String>(),
            rows in prop::collection::vec((any::<String>(), cell(), cell()), 1..12),
            columns in MIN_WIDTH..200,
        ) {
            let mut diff = example();
            let changed: Vec<_> = rows.iter().map(|(column, old, new)| FieldChange { column: column.clone(), old: old.clone(), new: new.clone() }).collect();
            let values: Vec<_> = rows.into_iter().map(|(column, value, _)| Field { column, value }).collect();
            let name = table.clone();
            diff.tables[1] = TableDiff {
                rows: vec![
                    RowChange::Inserted { values: values.clone() },
                    RowChange::Updated { key: values, columns: changed },
                ],
                table,
                ..diff.tables[1].clone()
            };
            diff.schema[0].name.clone_from(&name);
            diff.not_compared.clear();
            for line in format_diff(&diff, columns).lines() {
                prop_assert!(!line.contains(char::is_control), "{line:?}");
                prop_assert!(display_width(line) <= columns, "{} > {columns}: {line:?}", display_width(line));
            }
        }
    }
}
