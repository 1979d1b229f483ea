//! Looks up tables and settings in a catalog.

use std::collections::HashMap;

use crate::statistics::PAGE_SIZE;
use crate::{Catalog, CatalogTable, Node};

/// Returns the size of `pages` pages in bytes.
pub(crate) fn page_bytes(pages: u64) -> f64 {
    f64::from(PAGE_SIZE) * report::as_f64(pages)
}

/// Index of a catalog's tables by name. Other modules refer to a table by its place, which is its position in the
/// catalog.
#[derive(Debug)]
pub(crate) struct Tables<'a> {
    catalog: &'a Catalog,
    places: HashMap<(&'a str, &'a str), usize>,
    /// Pages and rows of each table, including its partitions.
    sizes: Vec<(u64, f64)>,
}

impl<'a> Tables<'a> {
    pub(crate) fn new(catalog: &'a Catalog) -> Self {
        let tables = &catalog.tables;
        let places = tables.iter().enumerate();
        let places =
            places.map(|(place, table)| ((table.schema.as_str(), table.name.as_str()), place)).collect();
        let mut found = Self { catalog, places, sizes: vec![(0, 0.0); tables.len()] };
        for (place, table) in tables.iter().enumerate() {
            let is_parent = table.kind == crate::RelationKind::PartitionedTable;
            for place in if is_parent { Vec::new() } else { found.ancestors(place) } {
                let (pages, rows) = &mut found.sizes[place];
                *pages += table.pages;
                *rows += table.rows.max(0.0);
            }
        }
        found
    }

    /// Returns the places of a table and of the partitioned tables above it, innermost first.
    fn ancestors(&self, place: usize) -> Vec<usize> {
        let mut places = vec![place];
        while let Some((schema, name)) = &self.catalog.tables[places[places.len() - 1]].parent {
            match self.places.get(&(schema.as_str(), name.as_str())) {
                Some(parent) if !places.contains(parent) => places.push(*parent),
                _ => break,
            }
        }
        places
    }

    /// Returns the catalog.
    pub(crate) fn catalog(&self) -> &'a Catalog {
        self.catalog
    }

    /// Returns the place of a table by its name.
    pub(crate) fn place(&self, schema: &str, name: &str) -> Option<usize> {
        self.places.get(&(schema, name)).copied()
    }

    /// Returns the table at `place`.
    pub(crate) fn table(&self, place: usize) -> &'a CatalogTable {
        &self.catalog.tables[place]
    }

    /// Returns the place of the relation that `node` reads. If the node has no schema, the name must be unique.
    pub(crate) fn of_node(&self, node: &Node) -> Option<usize> {
        let name = node.text("Relation Name")?;
        if let Some(schema) = node.text("Schema") {
            return self.place(schema, name);
        }
        let mut named = self.catalog.tables.iter().enumerate().filter(|(_, table)| table.name == name);
        match (named.next(), named.next()) {
            (Some((place, _)), None) => Some(place),
            _ => None,
        }
    }

    /// Returns the place of the outermost partitioned table above a table, or `place` itself if the table isn't a
    /// partition.
    pub(crate) fn root(&self, place: usize) -> usize {
        self.ancestors(place).pop().unwrap_or(place)
    }

    /// Returns the number of pages of a table, including its partitions.
    pub(crate) fn pages(&self, place: usize) -> u64 {
        self.sizes[place].0
    }

    /// Returns the estimated number of rows of a table, including its partitions.
    pub(crate) fn rows(&self, place: usize) -> f64 {
        self.sizes[place].1
    }

    /// Returns the value of a setting. `settings` are the session's own settings, which take precedence.
    fn setting<'s>(&'s self, name: &str, settings: &'s [(String, String)]) -> Option<&'s String> {
        let of_session = settings.iter().find(|(known, _)| known == name).map(|(_, value)| value);
        of_session.or_else(|| self.catalog.settings.get(name))
    }

    /// Returns the value in bytes of a size setting, such as `4MB`. `settings` are the session's own settings.
    pub(crate) fn memory(&self, name: &str, settings: &[(String, String)]) -> Option<f64> {
        let value = self.setting(name, settings)?;
        let unit = value.trim_start_matches(|letter: char| letter.is_ascii_digit());
        let number: f64 = value[..value.len() - unit.len()].parse().ok()?;
        let factor = match unit.trim() {
            "B" => 1.0,
            "" | "kB" => 1024.0,
            "MB" => 1024.0 * 1024.0,
            "GB" => 1024.0 * 1024.0 * 1024.0,
            "TB" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
            _ => return None,
        };
        Some(number * factor)
    }

    /// Returns the factor by which hash tables may exceed `work_mem`. `settings` are the session's own settings.
    pub(crate) fn hash_multiplier(&self, settings: &[(String, String)]) -> f64 {
        let value = self.setting("hash_mem_multiplier", settings);
        value.and_then(|value| value.parse().ok()).unwrap_or(1.0)
    }
}
