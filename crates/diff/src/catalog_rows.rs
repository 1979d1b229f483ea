//! Finds the catalog rows that only one of two databases has.
//!
//! A database and a copy of its template come from the same files. Nearly all of their catalog rows are equal, even
//! the oids in these rows, so reading all rows would be slow. Instead, the server hashes the rows. pgfresh reads only
//! the rows whose hashes differ and the rows that refer to a renamed object.

use std::collections::{BTreeSet, HashMap};
use std::thread;

use crate::catalogs::Catalog;
use crate::names::{FIRST_USER_OID, Names, parse_oid, parse_oids};
use crate::row_texts::texts;
use crate::session::{ReadError, Reader};

/// A catalog row and the object that it describes.
#[derive(Debug)]
pub(crate) struct CatalogRow<'a> {
    pub(crate) catalog: &'a Catalog,
    /// The object that the row describes: the oid of its class, its own oid, and the column number, which is 0 if the
    /// row doesn't describe a column.
    pub(crate) subject: (u32, u32, i32),
    /// Name of the column, or for some catalogs, a description of the object.
    pub(crate) label: String,
    /// Values of the catalog's columns.
    pub(crate) cells: Vec<Option<String>>,
}

/// One database's rows, and the names of the objects whose oids are in the rows.
#[derive(Debug, Default)]
pub(crate) struct Side<'a> {
    pub(crate) rows: Vec<CatalogRow<'a>>,
    pub(crate) names: Names,
}

/// Reads the rows that may differ between the two databases. Returns `None` if all catalogs are equal.
pub(crate) fn differing<'a>(
    catalogs: &'a [Catalog],
    [template, database]: [&mut Reader; 2],
) -> Result<Option<[Side<'a>; 2]>, ReadError> {
    let (old, new) =
        both([&mut *template, &mut *database], |reader, ()| digests(reader, catalogs), [(), ()])?;
    if old == new {
        return Ok(None);
    }
    let read = |reader: &mut Reader, ()| Ok(Names::read(reader, catalogs)?);
    let (old_names, new_names) = both([&mut *template, &mut *database], read, [(), ()])?;
    let renamed = old_names.renamed(&new_names);
    let differs = |(catalog, (old, new)): (&'a Catalog, (&String, &String))| {
        (!renamed.is_empty() || old != new).then_some((catalog, old != new))
    };
    let differing: Vec<_> = catalogs.iter().zip(old.iter().zip(&new)).filter_map(differs).collect();
    let (old, new) =
        both([&mut *template, &mut *database], |reader, ()| hashes(reader, &differing), [(), ()])?;
    let places = [(&old, &new), (&new, &old)]
        .map(|(one, other)| one.iter().zip(other).map(|(one, other)| only_in(one, other)).collect());
    let [old_places, new_places]: [Vec<Vec<String>>; 2] = places;
    let read = |reader: &mut Reader, (places, names): (Vec<Vec<String>>, Names)| {
        side(reader, &differing, &places, &renamed, names)
    };
    let (mut old, mut new) =
        both([&mut *template, &mut *database], read, [(old_places, old_names), (new_places, new_names)])?;
    let built_in: BTreeSet<_> = old.built_in().chain(new.built_in()).collect();
    let read = |reader: &mut Reader, names: &mut Names| Ok(names.add_built_in(reader, catalogs, &built_in)?);
    both([&mut *template, &mut *database], read, [&mut old.names, &mut new.names])?;
    Ok(Some([old, new]))
}

/// Calls `read` for both sessions concurrently. Each call gets its own input.
pub(crate) fn both<I: Send, T: Send>(
    [template, database]: [&mut Reader; 2],
    read: impl Fn(&mut Reader, I) -> Result<T, ReadError> + Sync,
    [old, new]: [I; 2],
) -> Result<(T, T), ReadError> {
    let (old, new) = thread::scope(|scope| {
        let old = scope.spawn(|| read(template, old));
        let new = read(database, new);
        (old.join(), new)
    });
    let old = old.map_err(|_| ReadError::Refused("a thread of pgfresh has panicked".to_owned()))?;
    Ok((old?, new?))
}

/// Returns one digest per catalog.
fn digests(reader: &mut Reader, catalogs: &[Catalog]) -> Result<Vec<String>, ReadError> {
    let digests: Vec<_> = catalogs.iter().map(|catalog| format!("({})", catalog.digest())).collect();
    let rows = reader.try_query_in_savepoint(&format!("SELECT unnest(ARRAY[{}])", digests.join(", ")))?;
    Ok(rows.into_iter().map(|row| texts(row)()).collect())
}

/// Maps each row hash to the locations of all rows with this hash.
type Hashes = HashMap<String, Vec<String>>;

/// Returns the row hashes of the catalogs whose digests differ. The maps of all other catalogs are empty.
fn hashes(reader: &mut Reader, catalogs: &[(&Catalog, bool)]) -> Result<Vec<Hashes>, ReadError> {
    let mut found = vec![Hashes::new(); catalogs.len()];
    let differing = catalogs.iter().enumerate().filter(|(_, (_, differs))| *differs);
    let selects: Vec<_> = differing.map(|(at, (catalog, _))| catalog.hashes(at)).collect();
    for row in reader.try_query_in_savepoint(&selects.join(" UNION ALL "))? {
        let mut next = texts(row);
        let (at, place) = (next().parse().unwrap_or(usize::MAX), next());
        if let Some(hashes) = found.get_mut(at) {
            hashes.entry(next()).or_default().push(place);
        }
    }
    Ok(found)
}

/// Returns the locations of rows whose hash occurs more or less often on the other side.
fn only_in(one: &Hashes, other: &Hashes) -> Vec<String> {
    let is_elsewhere = |(hash, places): &(&String, &Vec<String>)| {
        other.get(*hash).is_some_and(|others| others.len() == places.len())
    };
    one.iter().filter(|entry| !is_elsewhere(entry)).flat_map(|(_, places)| places.clone()).collect()
}

fn side<'a>(
    reader: &mut Reader,
    catalogs: &[(&'a Catalog, bool)],
    places: &[Vec<String>],
    renamed: &BTreeSet<u32>,
    names: Names,
) -> Result<Side<'a>, ReadError> {
    let some = catalogs.iter().zip(places).filter(|(_, places)| !places.is_empty() || !renamed.is_empty());
    let read = |reader: &mut Reader| {
        let mut rows = Vec::new();
        for (&(catalog, _), places) in some {
            let found = reader.try_query(&catalog.rows(places, renamed))?;
            rows.extend(found.into_iter().map(|row| CatalogRow::of(catalog, row)));
        }
        Ok(rows)
    };
    let mut rows = reader.in_savepoint(read)?;
    let is_temporary = |row: &CatalogRow<'_>| {
        names.is_temporary(row.subject.1) || row.oids().any(|oid| names.is_temporary(oid))
    };
    rows.retain(|row| !is_temporary(row));
    Ok(Side { rows, names })
}

impl Side<'_> {
    /// Returns the oids of all built-in objects (those created by initdb) that the rows refer to.
    fn built_in(&self) -> impl Iterator<Item = u32> {
        let of = |row: &CatalogRow<'_>| -> Vec<u32> {
            row.oids().chain([row.subject.1]).chain(row.depends_on().map(|(_, oid, _)| oid)).collect()
        };
        self.rows.iter().flat_map(of).filter(|oid| (1..FIRST_USER_OID).contains(oid))
    }
}

impl<'a> CatalogRow<'a> {
    /// Parses a result row of the query from [`Catalog::rows`].
    fn of(catalog: &'a Catalog, row: Vec<Option<String>>) -> Self {
        let cells = row.iter().skip(4).cloned().collect();
        let mut next = texts(row);
        let subject = (parse_oid(&next()), parse_oid(&next()), next().parse().unwrap_or(0));
        Self { catalog, subject, label: next(), cells }
    }

    /// Returns all oids in the row's columns.
    fn oids(&self) -> impl Iterator<Item = u32> {
        let columns = self.catalog.columns.iter().zip(&self.cells).filter(|(column, _)| column.has_oids());
        columns.filter_map(|(_, cell)| cell.as_deref()).flat_map(parse_oids)
    }

    /// Returns the value of a column as text, or an empty text for NULL.
    pub(crate) fn cell(&self, name: &str) -> &str {
        let at = self.catalog.columns.iter().position(|column| column.name == name);
        at.and_then(|at| self.cells[at].as_deref()).unwrap_or_default()
    }

    /// Returns the object that the row's subject depends on, if this is a row of `pg_depend`.
    pub(crate) fn depends_on(&self) -> Option<(u32, u32, i32)> {
        if self.catalog.name != "pg_depend" {
            return None;
        }
        let mut numbers = self.label.split(' ');
        let mut next = || numbers.next().unwrap_or_default();
        Some((parse_oid(next()), parse_oid(next()), next().parse().unwrap_or(0)))
    }
}
