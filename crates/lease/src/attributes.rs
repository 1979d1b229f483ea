//! What hangs on a template's database in catalogs that all databases share: owner, privileges, limit, settings, comment.
//!
//! No way of copying a database copies it, and some statements change it in each database of a role, wherever they are run
//! (`REASSIGN OWNED`, `DROP OWNED`). So it is noted when the template is taken into service, and put on each copy.

use server::literal;

use crate::cached::BOOTSTRAP;

/// What is seen of it each time that the database with that oid, an expression of SQL, gets a name: all but the comment. A
/// [`CatalogStamp`](crate::backend::CatalogStamp) begins with it.
macro_rules! seen {
    ($oid:literal) => {
        concat!(
            "concat_ws('|', datdba, datacl, datconnlimit, \
             ARRAY(SELECT setrole || '=' || setconfig::text FROM pg_db_role_setting WHERE setdatabase = ",
            $oid,
            " ORDER BY setrole))"
        )
    };
}
pub(crate) use seen;

/// What hangs on a database, as it was once.
#[derive(Debug)]
pub(crate) struct Attributes {
    seen: String,
    /// Owner, privileges and limit as JSON. Privileges name their roles.
    row: String,
    /// Its rows of `pg_db_role_setting`, and those of `pg_shdepend` about its owner and privileges, as JSON.
    settings: String,
    dependencies: String,
    /// Its comment; empty if there is none.
    comment: String,
    /// The roles of all these by oid, as JSON; those that the privileges name also by name.
    roles: String,
}

impl Attributes {
    /// Selects it, of the row `d` of `pg_database`.
    pub(crate) const COLUMNS: &str = concat!(
        seen!("d.oid"),
        ", jsonb_build_object('datdba', datdba, 'datacl', datacl, 'datconnlimit', datconnlimit), \
         (SELECT coalesce(jsonb_agg(to_jsonb(s)), '[]') FROM pg_db_role_setting s WHERE setdatabase = d.oid), \
         (SELECT coalesce(jsonb_agg(to_jsonb(s)), '[]') FROM pg_shdepend s \
          WHERE classid = 'pg_database'::regclass AND objid = d.oid AND deptype IN ('a', 'o')), \
         coalesce(shobj_description(oid, 'pg_database'), ''), \
         (SELECT coalesce(jsonb_agg(jsonb_build_object('oid', a.oid, 'rolname', CASE WHEN a.oid IN \
            (SELECT unnest(ARRAY[grantor, grantee]) FROM aclexplode(datacl)) THEN rolname END)), '[]') FROM pg_authid a \
          WHERE a.oid = datdba OR a.oid IN (SELECT setrole FROM pg_db_role_setting WHERE setdatabase = d.oid) \
             OR a.oid IN (SELECT refobjid FROM pg_shdepend WHERE classid = 'pg_database'::regclass AND objid = d.oid))"
    );

    /// From the values of these columns.
    pub(crate) fn read(mut next: impl FnMut() -> String) -> Self {
        Self {
            seen: next(),
            row: next(),
            settings: next(),
            dependencies: next(),
            comment: next(),
            roles: next(),
        }
    }

    /// Whether they are those of each new database.
    pub(crate) fn are_usual(&self) -> bool {
        self.seen == format!("{BOOTSTRAP}|-1|{{}}") && self.comment.is_empty()
    }

    /// Whether a database with that stamp has them, but for the comment.
    pub(crate) fn are_in(&self, stamp: &str) -> bool {
        stamp.strip_prefix(&self.seen).is_some_and(|rest| rest.starts_with('\n'))
    }

    /// SQL that gives them, and nothing else, to the database with the oid `to`, an expression. It fails if one of its roles is not there any more, or has
    /// another name than in the privileges.
    pub(crate) fn put_on(&self, to: &str) -> String {
        let Self { row, settings, dependencies, comment, roles, .. } = self;
        let [row, settings, dependencies, comment, roles] =
            [row, settings, dependencies, comment, roles].map(|text| literal(text));
        format!(
            "SELECT (CASE WHEN NOT EXISTS ( \
               SELECT FROM jsonb_populate_recordset(NULL::pg_authid, {roles}) noted \
               WHERE NOT EXISTS (SELECT FROM pg_authid a WHERE a.oid = noted.oid AND a.rolname = coalesce(noted.rolname, a.rolname))) \
               THEN '1' ELSE 'a role is not what it was' END)::int; \
             DELETE FROM pg_db_role_setting WHERE setdatabase = {to}; \
             INSERT INTO pg_db_role_setting SELECT {to}, setrole, setconfig \
               FROM jsonb_populate_recordset(NULL::pg_db_role_setting, {settings}); \
             DELETE FROM pg_shdepend WHERE classid = 'pg_database'::regclass AND objid = {to} AND deptype IN ('a', 'o'); \
             INSERT INTO pg_shdepend SELECT dbid, classid, {to}, objsubid, refclassid, refobjid, deptype \
               FROM jsonb_populate_recordset(NULL::pg_shdepend, {dependencies}); \
             DELETE FROM pg_shdescription WHERE classoid = 'pg_database'::regclass AND objoid = {to}; \
             INSERT INTO pg_shdescription SELECT {to}, 'pg_database'::regclass, {comment} WHERE {comment} <> ''; \
             UPDATE pg_database d SET datdba = noted.datdba, datacl = noted.datacl, datconnlimit = noted.datconnlimit \
               FROM jsonb_populate_record(NULL::pg_database, {row}) noted WHERE d.oid = {to}"
        )
    }
}
