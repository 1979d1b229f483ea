//! Groups catalog rows by object. An object's entry contains its properties from all catalogs.

use std::collections::{BTreeMap, HashMap};

use crate::catalog_rows::{CatalogRow, Side};
use crate::names::{Names, ObjectKey, THIS_DATABASE};

/// Key of a property: the name of its catalog, the number of its column in the catalog, and its human-readable name.
pub(crate) type PropertyKey = (String, usize, String);

/// The entry of one object in one of the two databases.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    pub(crate) properties: BTreeMap<PropertyKey, Option<String>>,
    /// Objects that are created or dropped together with this object. For example, dropping a table also drops
    /// its columns.
    pub(crate) parents: Vec<ObjectKey>,
    /// True if the object is part of another object, and only changes to that other object are worth reporting.
    pub(crate) is_part: bool,
    /// The columns that this column inherits from: the columns with the same name in its table's parents.
    pub(crate) inherited_from: Vec<ObjectKey>,
    /// True if the object exists in this database. The rows alone can't show this, because pgfresh only reads
    /// differing rows.
    pub(crate) exists: bool,
    /// The object's definition, as SQL or as a description. See `objects.sql`.
    pub(crate) definition: Option<String>,
}

pub(crate) type Entries = BTreeMap<ObjectKey, Entry>;

/// Column names, by table oid and column number.
type ColumnNames = HashMap<(u32, i32), String>;

/// Groups all rows of one database by the object that they describe.
pub(crate) fn entries(side: &Side<'_>) -> Entries {
    let is_column = |row: &&CatalogRow<'_>| row.catalog.name == "pg_attribute";
    let columns: ColumnNames = side
        .rows
        .iter()
        .filter(is_column)
        .map(|row| ((row.subject.1, row.subject.2), row.label.clone()))
        .collect();
    let mut found = Entries::new();
    for row in &side.rows {
        add(&mut found, row, &side.names, &columns);
    }
    found
}

fn add(found: &mut Entries, row: &CatalogRow<'_>, names: &Names, columns: &ColumnNames) {
    let subject = key_of(row, row.subject, names, columns);
    let main = key_of(row, (row.subject.0, row.subject.1, 0), names, columns);
    match &*row.catalog.name {
        "pg_depend" => add_dependency(found.entry(subject).or_default(), row, names, columns),
        "pg_description" | "pg_shdescription" => {
            let name = if row.label.is_empty() { THIS_DATABASE.to_owned() } else { row.label.clone() };
            let comment = found.entry(("comment on".to_owned(), name)).or_default();
            comment.exists = true;
            comment.definition = Some(row.cell("description").to_owned());
            comment.parents = vec![subject, main];
        }
        "pg_db_role_setting" => add_settings(found, row, names),
        _ => {
            add_grants(found, row, &subject, &main);
            let is_known = names.has(&subject) || subject.0 == "column";
            let entry = found.entry(subject).or_default();
            entry.exists |= !is_known || row.catalog.name == "pg_attribute";
            add_properties(entry, row, names);
            if row.subject.2 != 0 {
                let kind = main.0.clone();
                entry.parents.push(main);
                entry.is_part |= !matches!(&*kind, "table" | "foreign table" | "type");
                let parents = names.parents(row.subject.1).iter().copied();
                let column = |table| {
                    let (_, table) = names.object(row.subject.0, table)?;
                    Some(("column".to_owned(), format!("{table}.{}", row.label)))
                };
                entry.inherited_from.extend(parents.filter_map(column));
            }
        }
    }
}

/// Returns the kind and name of the object that a row describes.
fn key_of(row: &CatalogRow<'_>, subject: (u32, u32, i32), names: &Names, columns: &ColumnNames) -> ObjectKey {
    let (class, oid, column) = subject;
    if matches!(&*row.catalog.name, "pg_database" | "pg_shdescription" | "pg_shseclabel") {
        return (THIS_DATABASE.to_owned(), String::new());
    }
    let Some((kind, name)) = names.object(class, oid) else {
        return (row.catalog.name.clone(), if oid == 0 { String::new() } else { oid.to_string() });
    };
    match column {
        0 => (kind.clone(), name.clone()),
        // If a column's row in `pg_attribute` is equal on both sides, its name is unknown. Use its number instead.
        column => {
            let column = columns.get(&(oid, column)).cloned().unwrap_or_else(|| column.to_string());
            ("column".to_owned(), format!("{name}.{column}"))
        }
    }
}

fn add_dependency(entry: &mut Entry, row: &CatalogRow<'_>, names: &Names, columns: &ColumnNames) {
    let Some(reference) = row.depends_on() else { return };
    let of = |reference| key_of(row, reference, names, columns);
    // A view and its rule have the same key, and so do a composite type and its row type.
    if of(row.subject) == of(reference) {
        return;
    }
    match row.cell("deptype") {
        // Either the subject is an implementation detail of the other object, or the dependency connects a partition
        // with its root.
        "i" | "P" | "S" => entry.is_part = true,
        "a" => entry.parents.extend([of(reference), of((reference.0, reference.1, 0))]),
        kind @ ("e" | "x") => {
            let (_, name) = of(reference);
            let label = if kind == "e" { "member of extension" } else { "depends on extension" };
            entry
                .properties
                .insert((row.catalog.name.clone(), 0, format!("{label} {name}")), Some("yes".to_owned()));
            if kind == "e" {
                entry.parents.push(of(reference));
            }
        }
        // Definitions already include all other kinds of dependency.
        _ => {}
    }
}

/// Adds an entry for each of the database's settings.
fn add_settings(found: &mut Entries, row: &CatalogRow<'_>, names: &Names) {
    let role = match row.cell("setrole") {
        "0" => String::new(),
        role => format!(" for {}", names.replace_oids(role)),
    };
    for setting in parse_array(row.cell("setconfig")) {
        let (name, value) = setting.split_once('=').unwrap_or((&setting, ""));
        let entry = found.entry(("setting".to_owned(), format!("{name}{role}"))).or_default();
        entry.exists = true;
        entry.definition = Some(value.to_owned());
    }
}

fn add_grants(found: &mut Entries, row: &CatalogRow<'_>, subject: &ObjectKey, main: &ObjectKey) {
    let grants = row.catalog.columns.iter().zip(&row.cells).filter(|(column, _)| column.is_grants());
    for (_, value) in grants {
        let Some(value) = value else { continue };
        let name = match &*subject.0 {
            "table" | "view" | "materialized view" | "foreign table" | "sequence" | "column" | "function"
            | "procedure" | "aggregate" => subject.1.clone(),
            kind => format!("{kind} {}", subject.1).trim_end().to_owned(),
        };
        let entry = found.entry(("grants on".to_owned(), name)).or_default();
        entry.exists = true;
        entry.definition = Some(value.clone());
        entry.parents = vec![subject.clone(), main.clone()];
    }
}

fn add_properties(entry: &mut Entry, row: &CatalogRow<'_>, names: &Names) {
    let catalog = &row.catalog.name;
    let parts = row.catalog.part_columns();
    entry.is_part |= matches!(&**catalog, "pg_attribute" | "pg_constraint")
        && (row.cell("attislocal") == "false"
            || row.cell("conislocal") == "false" && row.cell("conparentid") != "0");
    let cells = row.catalog.columns.iter().zip(&row.cells).map(|(column, cell)| {
        let has_oids = column.has_oids();
        let text =
            cell.as_deref().map(|text| if has_oids { names.replace_oids(text) } else { text.to_owned() });
        (column, text)
    });
    let (label, others): (Vec<_>, Vec<_>) = cells.partition(|(column, _)| parts.contains(&&*column.name));
    if parts.is_empty() {
        for (at, (column, text)) in
            others.into_iter().enumerate().filter(|(_, (column, _))| !column.is_grants())
        {
            entry.properties.insert((catalog.clone(), at, column.name.clone()), text);
        }
        return;
    }
    let label: Vec<_> = label.into_iter().map(|(_, text)| text.unwrap_or_default()).collect();
    let values = others
        .into_iter()
        .map(|(column, text)| format!("{}={}", column.name, text.as_deref().unwrap_or("NULL")));
    let key = (catalog.clone(), 0, format!("{catalog} {}", label.join(" ")));
    entry.properties.insert(key, Some(values.collect::<Vec<_>>().join(" ")));
}

/// Parses an array of texts in the server's output format.
fn parse_array(array: &str) -> Vec<String> {
    let (mut found, mut element, mut is_quoted) = (Vec::new(), String::new(), false);
    let inner = array.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or_default();
    let mut signs = inner.chars();
    while let Some(sign) = signs.next() {
        match sign {
            '"' => is_quoted = !is_quoted,
            '\\' => element.extend(signs.next()),
            ',' if !is_quoted => found.push(std::mem::take(&mut element)),
            sign => element.push(sign),
        }
    }
    if !inner.is_empty() {
        found.push(element);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_of_texts_become_lists() {
        for (array, expected) in [
            ("{}", &[][..]),
            ("", &[]),
            ("{work_mem=8MB}", &["work_mem=8MB"]),
            (r#"{"search_path=a, \"B\"",x=,"y=\\"}"#, &[r#"search_path=a, "B""#, "x=", "y=\\"]),
        ] {
            assert_eq!(parse_array(array), expected, "{array}");
        }
    }
}
