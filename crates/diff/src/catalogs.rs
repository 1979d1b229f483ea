//! Lists the server's catalogs and their columns, and builds the SQL for reading them.
//!
//! A comparison reads every column of every catalog in `pg_catalog`, except those in [`NOT_COMPARED`]. It therefore
//! also covers catalogs and columns added by later versions of PostgreSQL. Tables in this file specify which rows
//! belong to an object of another catalog and how to read stored expressions.

use std::collections::{BTreeMap, BTreeSet};

use server::identifier;

use crate::DiffError;
use crate::row_texts::texts;
use crate::session::Reader;

/// Columns that a comparison skips. Each entry consists of a catalog, a column and the reason. The column `*` means all
/// columns, and the catalog `*` all catalogs.
pub const NOT_COMPARED: &[(&str, &str, &str)] = &[
    ("*", "oid", "objects are matched by name"),
    ("pg_aggregate", "aggfnoid", "belongs to the name of the function"),
    ("pg_attrdef", "adnum", "belongs to the name of the column"),
    ("pg_attrdef", "adrelid", "belongs to the name of the column"),
    ("pg_attribute", "attalign", "follows from the type"),
    ("pg_attribute", "attbyval", "follows from the type"),
    ("pg_attribute", "attcacheoff", "is used in memory only"),
    ("pg_attribute", "atthasmissing", "says how old rows store a default; their values are compared as rows"),
    ("pg_attribute", "attisdropped", "dropped columns are not compared"),
    ("pg_attribute", "attlen", "follows from the type"),
    ("pg_attribute", "attmissingval", "says how old rows store a default; their values are compared as rows"),
    ("pg_attribute", "attrelid", "belongs to the name of the column"),
    ("pg_auth_members", "*", "belongs to the server, not to a database"),
    ("pg_authid", "*", "belongs to the server, not to a database"),
    ("pg_class", "relallfrozen", "is an estimate of VACUUM"),
    ("pg_class", "relallvisible", "is an estimate of VACUUM"),
    ("pg_class", "relchecks", "counts constraints, which are compared"),
    ("pg_class", "relfilenode", "names a file"),
    ("pg_class", "relfrozenxid", "is the age of rows"),
    ("pg_class", "relhasindex", "VACUUM clears it at any time after the last index is gone"),
    ("pg_class", "relhasrules", "VACUUM clears it at any time after the last rule is gone"),
    ("pg_class", "relhassubclass", "VACUUM clears it at any time after the last child is gone"),
    ("pg_class", "relhastriggers", "VACUUM clears it at any time after the last trigger is gone"),
    ("pg_class", "relminmxid", "is the age of rows"),
    ("pg_class", "relnatts", "counts columns, which are compared"),
    ("pg_class", "relpages", "is an estimate of VACUUM"),
    ("pg_class", "relrewrite", "is set while ALTER TABLE runs"),
    ("pg_class", "reltoastrelid", "follows from the columns"),
    ("pg_class", "reltuples", "is an estimate of VACUUM"),
    ("pg_class", "reltype", "has the name of the table"),
    ("pg_collation", "collversion", "is the version of a library of the system"),
    ("pg_database", "datallowconn", "a database without connections cannot be read"),
    ("pg_database", "datcollversion", "is the version of a library of the system"),
    ("pg_database", "datfrozenxid", "is the age of rows"),
    ("pg_database", "dathasloginevt", "is a hint that follows from event triggers"),
    ("pg_database", "datlastsysoid", "is fixed by initdb"),
    ("pg_database", "datminmxid", "is the age of rows"),
    ("pg_database", "datname", "both databases have a name of their own"),
    ("pg_db_role_setting", "setdatabase", "both databases have a name of their own"),
    ("pg_depend", "classid", "belongs to the name of the object"),
    ("pg_depend", "objid", "belongs to the name of the object"),
    ("pg_depend", "objsubid", "belongs to the name of the object"),
    ("pg_depend", "refclassid", "belongs to the name of the object"),
    ("pg_depend", "refobjsubid", "belongs to the name of the object"),
    ("pg_description", "classoid", "belongs to the name of the object"),
    ("pg_description", "objoid", "belongs to the name of the object"),
    ("pg_description", "objsubid", "belongs to the name of the object"),
    ("pg_enum", "enumtypid", "belongs to the name of the type"),
    ("pg_foreign_table", "ftrelid", "belongs to the name of the table"),
    ("pg_index", "indcheckxmin", "is set until old transactions have ended"),
    ("pg_index", "indexrelid", "belongs to the name of the index"),
    ("pg_index", "indislive", "is set while DROP INDEX CONCURRENTLY runs"),
    ("pg_index", "indisready", "is set while CREATE INDEX CONCURRENTLY runs"),
    ("pg_index", "indrelid", "an index never gets another table"),
    ("pg_inherits", "inhrelid", "belongs to the name of the table"),
    ("pg_init_privs", "classoid", "belongs to the name of the object"),
    ("pg_init_privs", "objoid", "belongs to the name of the object"),
    ("pg_init_privs", "objsubid", "belongs to the name of the object"),
    ("pg_largeobject", "*", "is compared as rows"),
    ("pg_parameter_acl", "*", "belongs to the server, not to a database"),
    ("pg_partitioned_table", "partrelid", "belongs to the name of the table"),
    ("pg_range", "rngtypid", "belongs to the name of the type"),
    ("pg_replication_origin", "*", "belongs to the server, not to a database"),
    ("pg_seclabel", "classoid", "belongs to the name of the object"),
    ("pg_seclabel", "objoid", "belongs to the name of the object"),
    ("pg_seclabel", "objsubid", "belongs to the name of the object"),
    ("pg_sequence", "seqrelid", "belongs to the name of the sequence"),
    ("pg_shdepend", "*", "follows from owners, grants and policies"),
    ("pg_shdescription", "classoid", "is always the database"),
    ("pg_shdescription", "objoid", "is always the database"),
    ("pg_shseclabel", "classoid", "is always the database"),
    ("pg_shseclabel", "objoid", "is always the database"),
    ("pg_statistic", "*", "ANALYZE estimates it"),
    ("pg_statistic_ext_data", "*", "ANALYZE estimates it"),
    ("pg_subscription", "subdbid", "both databases have a name of their own"),
    ("pg_subscription_rel", "srsubid", "belongs to the name of the subscription"),
    ("pg_tablespace", "*", "belongs to the server, not to a database"),
    ("pg_ts_config_map", "mapcfg", "belongs to the name of the configuration"),
];

/// Conditions that select the rows to compare, by catalog.
const ROW_CONDITIONS: &[(&str, &str)] = &[
    // Dropped columns are invisible in SQL.
    ("pg_attribute", "NOT attisdropped"),
    // All databases of the cluster share these catalogs, so select only this database's rows.
    ("pg_database", "datname = current_database()"),
    ("pg_db_role_setting", "setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())"),
    ("pg_shdescription", THIS_DATABASE),
    ("pg_shseclabel", THIS_DATABASE),
    ("pg_subscription", "subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())"),
];
const THIS_DATABASE: &str = "classoid = 'pg_database'::regclass \
    AND objoid = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// Catalogs whose rows describe an object of another catalog. The first three columns identify this object by its
/// class, its oid and a column number. The remaining columns distinguish rows of the same object. In catalogs not
/// listed here, each row describes its own object.
const SUBJECTS: &[(&str, [&str; 3], &[&str])] = &[
    ("pg_aggregate", ["'pg_proc'::regclass", "aggfnoid", "0"], &[]),
    ("pg_attrdef", ["'pg_class'::regclass", "adrelid", "adnum"], &[]),
    ("pg_attribute", ["'pg_class'::regclass", "attrelid", "attnum"], &[]),
    ("pg_depend", ["classid", "objid", "objsubid"], &["refobjid"]),
    ("pg_description", ["classoid", "objoid", "objsubid"], &[]),
    ("pg_enum", ["'pg_type'::regclass", "enumtypid", "0"], &["enumlabel"]),
    ("pg_foreign_table", ["'pg_class'::regclass", "ftrelid", "0"], &[]),
    ("pg_index", ["'pg_class'::regclass", "indexrelid", "0"], &[]),
    ("pg_inherits", ["'pg_class'::regclass", "inhrelid", "0"], &["inhparent"]),
    ("pg_init_privs", ["classoid", "objoid", "objsubid"], &[]),
    ("pg_largeobject_metadata", ["'pg_largeobject'::regclass", "oid", "0"], &[]),
    ("pg_partitioned_table", ["'pg_class'::regclass", "partrelid", "0"], &[]),
    ("pg_range", ["'pg_type'::regclass", "rngtypid", "0"], &[]),
    ("pg_seclabel", ["classoid", "objoid", "objsubid"], &["provider"]),
    ("pg_sequence", ["'pg_class'::regclass", "seqrelid", "0"], &[]),
    ("pg_shdescription", ["classoid", "objoid", "0"], &[]),
    ("pg_shseclabel", ["classoid", "objoid", "0"], &["provider"]),
    ("pg_subscription_rel", ["'pg_subscription'::regclass", "srsubid", "0"], &["srrelid"]),
    ("pg_db_role_setting", ["'pg_database'::regclass", "setdatabase", "0"], &["setrole"]),
    ("pg_ts_config_map", ["'pg_ts_config'::regclass", "mapcfg", "0"], &["maptokentype", "mapseqno"]),
];

/// SQL for columns whose stored values can't be compared. For example, a stored expression contains positions in the
/// statement that created the expression, so PostgreSQL prints it as SQL. The owner of an index or a row type is
/// omitted, because it always equals the table's owner. So is the name of a TOAST table, because it contains the
/// table's oid.
const COMPARABLE_SQL: &[(&str, &str)] = &[
    ("pg_attrdef.adbin", "pg_get_expr(adbin, adrelid)"),
    ("pg_class.relname", "CASE WHEN relkind <> 't' THEN relname::text END"),
    ("pg_class.relowner", "CASE WHEN relkind NOT IN ('i', 'I', 't') THEN relowner::oid::text END"),
    ("pg_class.relpartbound", "pg_get_expr(relpartbound, oid)"),
    ("pg_constraint.conbin", "pg_get_constraintdef(oid)"),
    ("pg_index.indexprs", "pg_get_expr(indexprs, indrelid)"),
    ("pg_index.indpred", "pg_get_expr(indpred, indrelid)"),
    ("pg_partitioned_table.partexprs", "pg_get_expr(partexprs, partrelid)"),
    ("pg_policy.polqual", "pg_get_expr(polqual, polrelid)"),
    ("pg_policy.polwithcheck", "pg_get_expr(polwithcheck, polrelid)"),
    ("pg_proc.proargdefaults", "pg_get_expr(proargdefaults, 0)"),
    ("pg_proc.prosqlbody", "pg_get_function_sqlbody(oid)"),
    ("pg_publication_rel.prqual", "pg_get_expr(prqual, prrelid)"),
    ("pg_rewrite.ev_action", "pg_get_ruledef(oid)"),
    ("pg_rewrite.ev_qual", "pg_get_ruledef(oid)"),
    ("pg_statistic_ext.stxexprs", "pg_get_expr(stxexprs, stxrelid)"),
    ("pg_trigger.tgqual", "pg_get_triggerdef(oid)"),
    ("pg_type.typdefaultbin", "pg_get_expr(typdefaultbin, 0)"),
    ("pg_type.typowner", "CASE WHEN typrelid = 0 AND typcategory <> 'A' THEN typowner::oid::text END"),
];

/// Columns that contain column numbers, with the column that identifies the table. The comparison replaces the numbers
/// with names, because a table's columns get other numbers if its earlier columns were dropped.
const COLUMN_NUMBERS: &[(&str, &str)] = &[
    ("pg_constraint.confdelsetcols", "conrelid"),
    ("pg_constraint.confkey", "confrelid"),
    ("pg_constraint.conkey", "conrelid"),
    ("pg_index.indkey", "indrelid"),
    ("pg_partitioned_table.partattrs", "partrelid"),
    ("pg_publication_rel.prattrs", "prrelid"),
    ("pg_statistic_ext.stxkeys", "stxrelid"),
    ("pg_trigger.tgattr", "tgrelid"),
];

/// SQL for an object's default privileges, keyed by the column that stores the privileges.
const DEFAULT_GRANTS: &[(&str, &str)] = &[
    ("pg_attribute.attacl", "'{}'"),
    ("pg_class.relacl", "acldefault((CASE relkind WHEN 'S' THEN 's' ELSE 'r' END)::\"char\", relowner)"),
    ("pg_database.datacl", "acldefault('d', datdba)"),
    ("pg_foreign_data_wrapper.fdwacl", "acldefault('F', fdwowner)"),
    ("pg_foreign_server.srvacl", "acldefault('S', srvowner)"),
    ("pg_language.lanacl", "acldefault('l', lanowner)"),
    ("pg_largeobject_metadata.lomacl", "acldefault('L', lomowner)"),
    ("pg_namespace.nspacl", "acldefault('n', nspowner)"),
    ("pg_proc.proacl", "acldefault('f', proowner)"),
    ("pg_type.typacl", "acldefault('T', typowner)"),
];

/// A catalog, with the columns that a comparison reads.
#[derive(Debug)]
pub(crate) struct Catalog {
    pub(crate) name: String,
    /// True if the catalog's rows have an oid that other rows refer to.
    pub(crate) has_oid: bool,
    pub(crate) columns: Vec<CatalogColumn>,
    /// Names of all columns of type `oid`, including columns that a comparison skips.
    oids: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct CatalogColumn {
    pub(crate) name: String,
    type_name: String,
}

impl CatalogColumn {
    /// Returns true if the column's text contains oids. The comparison replaces these oids with names.
    pub(crate) fn has_oids(&self) -> bool {
        matches!(&*self.type_name, "oid" | "oid[]" | "oidvector") || self.is_registered()
    }

    /// Returns true if the column contains privileges. The comparison interprets NULL in such a column as the default
    /// privileges, which depend on the object's owner.
    pub(crate) fn is_grants(&self) -> bool {
        self.type_name == "aclitem[]" && !matches!(&*self.name, "defaclacl" | "initprivs")
    }

    /// Returns true if the column has a type such as `regproc`. The column's values are oids, but PostgreSQL prints
    /// them as names without function arguments.
    fn is_registered(&self) -> bool {
        self.type_name.starts_with("reg")
    }
}

/// Returns all catalogs with at least one column to compare.
pub(crate) fn catalogs(reader: &mut Reader) -> Result<Vec<Catalog>, DiffError> {
    let mut found: BTreeMap<String, Catalog> = BTreeMap::new();
    let rows = reader.query(
        "SELECT c.relname, a.attname, format_type(a.atttypid, NULL) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid \
         WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped \
         ORDER BY c.relname, a.attnum",
    )?;
    for row in rows {
        let mut next = texts(row);
        let (catalog, name, type_name) = (next(), next(), next());
        let entry = found.entry(catalog.clone()).or_insert_with(|| Catalog {
            name: catalog.clone(),
            has_oid: false,
            columns: Vec::new(),
            oids: Vec::new(),
        });
        entry.has_oid |= name == "oid";
        if type_name == "oid" || type_name.starts_with("reg") {
            entry.oids.push(name.clone());
        }
        if is_compared(&catalog, &name) {
            entry.columns.push(CatalogColumn { name, type_name });
        }
    }
    Ok(found.into_values().filter(|catalog| !catalog.columns.is_empty()).collect())
}

fn is_compared(catalog: &str, column: &str) -> bool {
    let is_it = |(c, n, _): &(&str, &str, &str)| (*c == catalog || *c == "*") && (*n == column || *n == "*");
    !NOT_COMPARED.iter().any(is_it)
}

impl Catalog {
    /// Returns the FROM clause with the condition that selects the rows.
    fn source(&self) -> String {
        let rows = ROW_CONDITIONS
            .iter()
            .find(|(name, _)| *name == self.name)
            .map_or("true", |(_, condition)| condition);
        format!("FROM pg_catalog.{} t WHERE {rows}", identifier(&self.name))
    }

    /// Returns SQL for a hash of all columns of a row. Two rows have equal hashes if their values, including all
    /// oids, are equal.
    fn hash(&self) -> String {
        let is_column = |sql: &String| !sql.contains('\'') && sql != "0";
        let subject: Vec<_> = self.subject().into_iter().filter(is_column).collect();
        let compared = self.columns.iter().map(|column| &column.name);
        let mut columns: Vec<_> = compared.chain(&self.oids).chain(&subject).collect();
        // The oids of the database and of the template's copy always differ, so exclude these oids.
        let is_this_database = |name: &str| match &*self.name {
            "pg_database" => name == "oid",
            "pg_shdescription" | "pg_shseclabel" => name == "objoid",
            _ => matches!(name, "subdbid" | "setdatabase"),
        };
        columns.retain(|name| !is_this_database(name));
        columns.sort_unstable();
        columns.dedup();
        let columns: Vec<_> = columns.iter().map(|name| format!("t.{}", identifier(name))).collect();
        format!("hashtextextended(textin(record_out(ROW({}))) COLLATE \"C\", 0)", columns.join(", "))
    }

    /// Returns SQL for a single digest of all rows. The order of the rows doesn't affect the digest.
    pub(crate) fn digest(&self) -> String {
        format!("SELECT count(*) || ' ' || coalesce(sum({}), 0) {}", self.hash(), self.source())
    }

    /// Returns a query for the location and hash of each row. Each result row begins with `number`, which identifies
    /// the catalog when several of these queries are combined.
    pub(crate) fn hashes(&self, number: usize) -> String {
        format!("SELECT {number}, ctid, {} {}", self.hash(), self.source())
    }

    /// Returns a query for the rows at `places` and for the rows that refer to an object with one of `oids`. Each
    /// result row begins with the class, oid and column number of the object that the row describes. A label follows,
    /// such as a column name, a description of the object, or the object it depends on. The values of the catalog's
    /// columns come last.
    pub(crate) fn rows(&self, places: &[String], oids: &BTreeSet<u32>) -> String {
        let [class, oid, sub] = self.subject();
        let label = match &*self.name {
            "pg_attribute" => "quote_ident(attname)",
            "pg_depend" => "concat_ws(' ', refclassid, refobjid, refobjsubid)",
            "pg_description" | "pg_seclabel" => "pg_describe_object(classoid, objoid, objsubid)",
            _ => "''",
        };
        let cells: Vec<_> = self.columns.iter().map(|column| self.column_sql(column)).collect();
        let quoted: Vec<_> = places.iter().map(|place| format!("\"{place}\"")).collect();
        let mut conditions = vec![format!("ctid = ANY ('{{{}}}'::tid[])", quoted.join(","))];
        if !oids.is_empty() {
            let oids: Vec<_> = oids.iter().map(ToString::to_string).collect();
            let oids = format!("('{{{}}}'::oid[])", oids.join(","));
            conditions.extend(self.oids.iter().map(|name| format!("{}::oid = ANY {oids}", identifier(name))));
            let arrays =
                self.columns.iter().filter(|column| column.has_oids() && !self.oids.contains(&column.name));
            conditions.extend(arrays.map(|column| format!("{}::oid[] && {oids}", identifier(&column.name))));
        }
        format!(
            "SELECT {class}::oid, {oid}::oid, {sub}, {label}, {} {} AND ({})",
            cells.join(", "),
            self.source(),
            conditions.join(" OR ")
        )
    }

    fn subject(&self) -> [String; 3] {
        let subject = SUBJECTS.iter().find(|(name, ..)| *name == self.name).map(|(_, subject, _)| subject);
        let own = || {
            let oid = if self.has_oid { "oid" } else { "0" };
            [format!("'pg_catalog.{}'::regclass", self.name), oid.to_owned(), "0".to_owned()]
        };
        subject.map_or_else(own, |subject| subject.map(str::to_owned))
    }

    /// Returns the columns that distinguish the rows of the same object, or an empty list if each object has
    /// a single row.
    pub(crate) fn part_columns(&self) -> Vec<&str> {
        let known = SUBJECTS.iter().find(|(name, ..)| *name == self.name).map(|(.., parts)| parts.to_vec());
        let all = || self.columns.iter().map(|column| &*column.name).collect();
        known.unwrap_or_else(|| if self.has_oid { Vec::new() } else { all() })
    }

    fn column_sql(&self, column: &CatalogColumn) -> String {
        let name = identifier(&column.name);
        let key = format!("{}.{}", self.name, column.name);
        if let Some((_, sql)) = COMPARABLE_SQL.iter().find(|(cell, _)| *cell == key) {
            return format!("CASE WHEN {name} IS NOT NULL THEN {sql} END");
        }
        if let Some((_, table)) = COLUMN_NUMBERS.iter().find(|(cell, _)| *cell == key) {
            return column_names_sql(&name, table);
        }
        if let Some((_, default)) = DEFAULT_GRANTS.iter().find(|(cell, _)| *cell == key) {
            return grants_sql(&name, default);
        }
        if column.is_registered() { format!("{name}::oid::text") } else { format!("{name}::text") }
    }
}

/// Returns SQL for the names of the columns whose numbers the column `name` contains. 0 stands for an expression.
fn column_names_sql(name: &str, table: &str) -> String {
    format!(
        "(SELECT string_agg(coalesce(quote_ident(a.attname), k.number::text), ' ' ORDER BY k.at) \
         FROM unnest(t.{name}) WITH ORDINALITY k(number, at) \
         LEFT JOIN pg_attribute a ON a.attrelid = t.{table} AND a.attnum = k.number)"
    )
}

/// Returns SQL for privileges as text, or NULL if they are the default privileges: a GRANT and a REVOKE leave a list
/// behind that equals the defaults. The order of the list doesn't matter.
fn grants_sql(column: &str, default: &str) -> String {
    let sorted = |list: &str| {
        format!("ARRAY(SELECT item FROM unnest(({list})::text::text[]) item ORDER BY item COLLATE \"C\")")
    };
    let granted = sorted(column);
    format!("CASE WHEN {column} IS NOT NULL THEN nullif({granted}, {}) END::text", sorted(default))
}
