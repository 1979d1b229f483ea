//! Parses the actions of an ALTER TABLE.

use super::cursor::Cursor;

/// One action of an ALTER TABLE, which may have several, separated by commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TableAction {
    AddColumn(AddedColumn),
    AddConstraint(AddedConstraint),
    ChangeType,
    SetNotNull { column: String },
    DropDefault { column: String },
    SetExpression,
    DropColumn { column: String },
    RenameColumn { column: String, to: String },
    RenameTable { to: String },
    SetSchema { schema: String },
    AttachPartition,
    DisableTrigger,
    ValidateConstraint,
    Other,
}

/// The column that an ADD COLUMN adds, with its constraints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "a column may have any of these independently")]
pub(super) struct AddedColumn {
    pub(super) name: String,
    pub(super) has_default: bool,
    /// Whether the default calls a function that may return a different value for each row.
    pub(super) may_be_volatile: bool,
    pub(super) is_not_null: bool,
    /// Whether a sequence provides the column's values.
    pub(super) is_serial: bool,
    pub(super) is_generated: bool,
    pub(super) has_check: bool,
    pub(super) is_unique: bool,
    pub(super) is_primary_key: bool,
    pub(super) has_reference: bool,
}

/// The constraint that an ADD CONSTRAINT adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AddedConstraint {
    pub(super) kind: ConstraintKind,
    pub(super) is_not_valid: bool,
    /// Whether the constraint uses an existing index.
    pub(super) uses_index: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConstraintKind {
    Check,
    NotNull,
    ForeignKey,
    Unique,
    PrimaryKey,
    Exclusion,
}

/// Reads the actions that follow the table name.
pub(super) fn table_actions(cursor: Cursor<'_>) -> Vec<TableAction> {
    cursor.list().into_iter().map(|part| table_action(part).unwrap_or(TableAction::Other)).collect()
}

fn table_action(mut cursor: Cursor<'_>) -> Option<TableAction> {
    if cursor.skip("add") {
        return add(cursor);
    }
    if cursor.skip("alter") {
        cursor.skip("column");
        let column = cursor.identifier()?;
        return if cursor.is_at("type") || cursor.is_at("set data type") {
            Some(TableAction::ChangeType)
        } else if cursor.is_at("set not null") {
            Some(TableAction::SetNotNull { column })
        } else if cursor.is_at("drop default") {
            Some(TableAction::DropDefault { column })
        } else if cursor.is_at("set expression") {
            Some(TableAction::SetExpression)
        } else {
            None
        };
    }
    if cursor.skip("drop") {
        if cursor.is_at("constraint") {
            return None;
        }
        cursor.skip("column");
        cursor.skip("if exists");
        return Some(TableAction::DropColumn { column: cursor.identifier()? });
    }
    if cursor.skip("rename") {
        if cursor.is_at("constraint") {
            return None;
        }
        if cursor.skip("to") {
            return Some(TableAction::RenameTable { to: cursor.identifier()? });
        }
        cursor.skip("column");
        let column = cursor.identifier()?;
        return cursor
            .skip("to")
            .then(|| cursor.identifier())
            .flatten()
            .map(|to| TableAction::RenameColumn { column, to });
    }
    if cursor.skip("set schema") {
        return Some(TableAction::SetSchema { schema: cursor.identifier()? });
    }
    if cursor.is_at("validate constraint") {
        return Some(TableAction::ValidateConstraint);
    }
    if cursor.is_at("attach partition") {
        return Some(TableAction::AttachPartition);
    }
    cursor.is_at("disable trigger").then_some(TableAction::DisableTrigger)
}

fn add(mut cursor: Cursor<'_>) -> Option<TableAction> {
    if cursor.skip("constraint") {
        cursor.identifier()?;
        return constraint(cursor).map(TableAction::AddConstraint);
    }
    if !cursor.skip("column")
        && let Some(constraint) = constraint(cursor)
    {
        return Some(TableAction::AddConstraint(constraint));
    }
    cursor.skip("if not exists");
    let name = cursor.identifier()?;
    let types = ["smallserial", "serial", "bigserial", "serial2", "serial4", "serial8"];
    let is_identity = cursor.has("as identity");
    Some(TableAction::AddColumn(AddedColumn {
        name,
        is_serial: is_identity || types.iter().any(|name| cursor.is_at(name)),
        is_generated: cursor.has("generated") && !is_identity,
        has_default: cursor.has("default"),
        may_be_volatile: may_be_volatile(cursor),
        is_not_null: cursor.has("not null"),
        has_check: cursor.has("check"),
        is_unique: cursor.has("unique"),
        is_primary_key: cursor.has("primary key"),
        has_reference: cursor.has("references"),
    }))
}

/// Returns true if a default has parentheses and doesn't call a function that is constant within a transaction, such as
/// `now()`.
fn may_be_volatile(mut cursor: Cursor<'_>) -> bool {
    let stable = ["now", "transaction_timestamp"];
    cursor.skip_past("default").is_some()
        && !stable.iter().any(|name| cursor.is_at(name))
        && cursor.rest().iter().any(|token| token.is_sign(b'('))
}

/// Reads the constraint that follows its name. Returns `None` if the text defines a column.
fn constraint(cursor: Cursor<'_>) -> Option<AddedConstraint> {
    let kinds = [
        ("check", ConstraintKind::Check),
        ("not null", ConstraintKind::NotNull),
        ("foreign key", ConstraintKind::ForeignKey),
        ("unique", ConstraintKind::Unique),
        ("primary key", ConstraintKind::PrimaryKey),
        ("exclude using", ConstraintKind::Exclusion),
    ];
    let named = kinds.into_iter().find(|(words, _)| cursor.is_at(words)).map(|(_, kind)| kind);
    let is_exclusion = cursor.is_at("exclude") && cursor.rest().get(1).is_some_and(|next| next.is_sign(b'('));
    Some(AddedConstraint {
        kind: named.or(is_exclusion.then_some(ConstraintKind::Exclusion))?,
        is_not_valid: cursor.has("not valid"),
        uses_index: cursor.has("using index") && !cursor.has("using index tablespace"),
    })
}
