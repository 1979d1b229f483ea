//! Keeps track of the relations that existed before the migration. Locks on relations that the migration itself created
//! do no harm, because no other code uses them.

use std::collections::HashSet;

use plans::RelationName;

use super::change::SchemaChange;
use super::cursor::SqlName;
use super::table_action::TableAction;
use crate::{ObservedStatement, RelationSize};

/// Current names of the relations that existed before the migration.
pub(super) struct OldRelations {
    /// Each relation with its database.
    names: HashSet<(String, RelationName)>,
    /// Names that the current transaction freed by dropping or renaming a relation. They stay in `names` until the
    /// transaction ends, because locks observed in it may still use them.
    freed: Vec<(String, RelationName)>,
    transaction: usize,
}

impl OldRelations {
    pub(super) fn new(sizes: &[RelationSize]) -> Self {
        let names = sizes.iter().map(|size| (size.database.clone(), size.relation.clone()));
        Self { names: names.collect(), freed: Vec::new(), transaction: 0 }
    }

    /// Removes the names that an earlier transaction freed. Call this before each statement.
    pub(super) fn begin(&mut self, statement: &ObservedStatement) {
        if self.transaction != statement.transaction {
            self.transaction = statement.transaction;
            for name in self.freed.drain(..) {
                self.names.remove(&name);
            }
        }
    }

    /// Returns true if the relation existed before the migration.
    pub(super) fn contains(&self, database: &str, relation: &RelationName) -> bool {
        self.names.contains(&(database.to_owned(), relation.clone()))
    }

    /// Returns true if a relation with this name existed before the migration. A name without a schema matches in any
    /// schema.
    pub(super) fn has(&self, database: &str, name: &SqlName) -> bool {
        self.matching(database, name).next().is_some()
    }

    /// Returns true if the schema contains a relation that existed before the migration.
    pub(super) fn has_schema(&self, database: &str, schema: &str) -> bool {
        self.names.iter().any(|(known, relation)| known == database && relation.schema == schema)
    }

    fn matching(&self, database: &str, name: &SqlName) -> impl Iterator<Item = &(String, RelationName)> {
        let is_schema = |schema: &str| name.schema.as_ref().is_none_or(|named| named == schema);
        self.names.iter().filter(move |(known, relation)| {
            known == database && relation.name == name.name && is_schema(&relation.schema)
        })
    }

    /// Updates the names after a statement that succeeded.
    pub(super) fn apply(&mut self, database: &str, change: &SchemaChange) {
        let rename = |name: &SqlName, rename: &dyn Fn(&mut RelationName)| {
            let old: Vec<_> = self.matching(database, name).cloned().collect();
            let new = old.iter().map(|(database, relation)| {
                let mut relation = relation.clone();
                rename(&mut relation);
                (database.clone(), relation)
            });
            (old.clone(), new.collect::<Vec<_>>())
        };
        let mut freed = Vec::new();
        let mut named = Vec::new();
        match change {
            SchemaChange::AlterTable { table, actions } => {
                for action in actions {
                    (freed, named) = match action {
                        TableAction::RenameTable { to } => {
                            rename(table, &|relation| relation.name.clone_from(to))
                        }
                        TableAction::SetSchema { schema } => {
                            rename(table, &|relation| relation.schema.clone_from(schema))
                        }
                        _ => continue,
                    };
                }
            }
            SchemaChange::DropTables { names } | SchemaChange::DropMaterializedViews { names } => {
                for name in names {
                    freed.extend(self.matching(database, name).cloned());
                }
            }
            _ => {}
        }
        self.freed.extend(freed);
        self.freed.retain(|name| !named.contains(name));
        self.names.extend(named);
    }
}
