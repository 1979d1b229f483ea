//! Reads and copies the template attributes that PostgreSQL stores in shared
//! catalogs: owner, privileges, connection limit, settings and comment.
//!
//! Neither CREATE DATABASE nor copying files carries these attributes over. In addition, some statements (for example
//! `REASSIGN OWNED` and `DROP OWNED`) change the attributes of every database owned by a role, not only of the
//! session's own. Therefore pgfresh reads the attributes when it puts a template into service and sets them on each
//! copy.

use server::literal;

use crate::runtime::cached::BOOTSTRAP;

/// An SQL expression for all of a database's attributes except the comment. `$oid` is an SQL expression for the
/// database's oid. A [`CatalogStamp`](crate::backends::backend::CatalogStamp) begins with this value.
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

/// A database's attributes at one point in time.
#[derive(Debug)]
pub(crate) struct Attributes {
    seen: String,
    /// Owner, privileges and connection limit, as JSON. The privileges refer to roles by name.
    row: String,
    /// Rows of `pg_db_role_setting`, as JSON. The next field contains the rows of `pg_shdepend` for the owner and the
    /// privileges.
    settings: String,
    dependencies: String,
    /// The database's comment, or an empty string.
    comment: String,
    /// All roles mentioned in these attributes, as JSON with their oids. Roles in the privileges also have their names
    /// here.
    roles: String,
}

impl Attributes {
    /// Selects the values for [`Self::read`], given the row `d` of `pg_database`.
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

    /// Reads the values of [`Self::COLUMNS`], in their order.
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

    /// Returns true if these attributes are the defaults of a new database.
    pub(crate) fn are_usual(&self) -> bool {
        self.seen == format!("{BOOTSTRAP}|-1|{{}}") && self.comment.is_empty()
    }

    /// Returns true if the stamp's database has these attributes, ignoring the comment, which stamps don't contain.
    pub(crate) fn are_in(&self, stamp: &str) -> bool {
        stamp.strip_prefix(&self.seen).is_some_and(|rest| rest.starts_with('\n'))
    }

    /// Returns SQL that replaces all attributes of a database with these. `to` is an SQL expression for the database's
    /// oid. The SQL fails if one of the roles no longer exists or a role in the privileges has been renamed.
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
