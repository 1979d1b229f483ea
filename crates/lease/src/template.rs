//! Template databases: taken into service, and copied.

use std::sync::{Arc, OnceLock};

use crate::backend::{Standing, standing};
use crate::recycle::roll_back_prepared;
use crate::shape::{Shape, text};
use crate::sql::{Clerks, Prepared, identifier, literal};
use crate::{LeaseError, TemplateDatabase};

/// What our own databases' names begin with; nobody else may use such a name.
pub(crate) const PREFIX: &str = "pgfresh_";

/// A template in service.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    pub(crate) name: String,
    pub(crate) database: String,
    pub(crate) oid: u32,
    pub(crate) bytes: u64,
    owner: String,
    /// Whether anything hangs on it that CREATE DATABASE does not copy.
    forgets: bool,
    /// What recycling needs to know; read in the first copy. `template1` may change, so it has none.
    pub(crate) shape: Arc<OnceLock<Shape>>,
}

impl Template {
    /// Renames the database so that its own name is free for copies, and lets nobody into it.
    ///
    /// `template1` stays what it is everywhere: the one that users may change before they make databases.
    pub(crate) fn take(template: &TemplateDatabase, clerks: &Clerks) -> Result<Self, LeaseError> {
        let TemplateDatabase { name, database } = template;
        let mut called = database.clone();
        if database != "template1" {
            called = format!("{PREFIX}template_{name}");
            if called != *database {
                let sql =
                    format!("ALTER DATABASE {} RENAME TO {}", identifier(database), identifier(&called));
                clerks.run("rename a template", &sql)?;
            }
            let sql = format!(
                "UPDATE pg_database SET datistemplate = true, datallowconn = false WHERE datname = {}",
                literal(&called)
            );
            clerks.run("close a template", &sql)?;
        }
        let sql = format!(
            "SELECT oid, pg_database_size(oid), pg_get_userbyid(datdba), \
             datacl IS NOT NULL OR datconnlimit <> -1 \
             OR EXISTS (SELECT FROM pg_db_role_setting s WHERE s.setdatabase = d.oid) \
             OR shobj_description(oid, 'pg_database') IS NOT NULL \
             FROM pg_database d WHERE datname = {}",
            literal(&called)
        );
        let rows = clerks.run("look at a template", &sql)?;
        let row = rows
            .into_iter()
            .next()
            .ok_or_else(|| LeaseError::UnknownTemplate { name: name.clone(), known: Vec::new() })?;
        let mut columns = row.into_iter().map(Option::unwrap_or_default);
        let mut next = || columns.next().unwrap_or_default();
        Ok(Self {
            name: name.clone(),
            database: called.clone(),
            oid: next().parse().unwrap_or(0),
            bytes: next().parse().unwrap_or(0),
            owner: next(),
            forgets: next() == "t" && called != "template1",
            shape: Arc::default(),
        })
    }

    /// Whether its copies can be recycled by a server of that major: statistics are exact from 15.
    pub(crate) fn is_recyclable(&self, major: u32) -> bool {
        major >= 15 && self.database != "template1"
    }

    /// Makes a copy called `name`, with all that CREATE DATABASE forgets; returns its oid.
    ///
    /// # Errors
    /// SQLSTATE 42P04 if the name is taken. On any error there is no such copy.
    pub(crate) fn copy(&self, name: &str, major: u32, clerks: &Clerks) -> Result<u32, LeaseError> {
        // By files: the server's own default writes each page to the WAL, which takes twice as long. Before 15 there
        // is no other way than by files.
        let strategy = if major >= 15 { " STRATEGY FILE_COPY" } else { "" };
        let sql = format!(
            "CREATE DATABASE {} TEMPLATE {} OWNER {}{strategy}",
            identifier(name),
            identifier(&self.database),
            identifier(&self.owner)
        );
        clerks.run("copy a template", &sql)?;
        let result = self.complete(name, clerks);
        if result.is_err() {
            drop_database(name, clerks)?;
        }
        result
    }

    /// Copies what hangs on the template in catalogs that all databases share: settings, grants, limit, comment.
    fn complete(&self, name: &str, clerks: &Clerks) -> Result<u32, LeaseError> {
        let (from, name) = (self.oid, literal(name));
        let find = format!("SELECT oid FROM pg_database WHERE datname = {name}");
        let sql = if self.forgets {
            format!(
                "INSERT INTO pg_db_role_setting SELECT ({find}), setrole, setconfig \
                 FROM pg_db_role_setting WHERE setdatabase = {from}; \
                 INSERT INTO pg_shdepend SELECT dbid, classid, ({find}), objsubid, refclassid, refobjid, deptype \
                 FROM pg_shdepend WHERE classid = 'pg_database'::regclass AND objid = {from} AND deptype = 'a'; \
                 INSERT INTO pg_shdescription SELECT ({find}), classoid, description \
                 FROM pg_shdescription WHERE classoid = 'pg_database'::regclass AND objoid = {from}; \
                 UPDATE pg_database n SET datacl = t.datacl, datconnlimit = t.datconnlimit \
                 FROM pg_database t WHERE n.datname = {name} AND t.oid = {from}; {find}"
            )
        } else {
            find
        };
        let rows = clerks.run("complete a copy", &sql)?;
        let oid = rows.last().and_then(|row| row.first()?.as_deref()?.parse().ok());
        oid.ok_or(LeaseError::NotLeased(name))
    }
}

const NAME: Prepared = Prepared {
    name: "name",
    types: &["oid", "name"],
    sql: concat!("UPDATE pg_database SET datname = $2 WHERE oid = $1 RETURNING (", standing!(), ")"),
};

/// Gives the database with that oid another name, under whoever is connected to it.
///
/// `ALTER DATABASE … RENAME` refuses that. Sessions follow: they know their database by its oid. Returns its standing.
/// # Errors
/// SQLSTATE 23505 if the name is taken.
pub(crate) fn rename(oid: u32, name: &str, clerks: &Clerks) -> Result<Standing, LeaseError> {
    let rows = clerks.execute("name a database", &NAME, &[&oid.to_string(), &literal(name)])?;
    if rows.is_empty() { Err(LeaseError::NotLeased(name.to_owned())) } else { Ok(text(&rows).into()) }
}

/// Drops a database and ends whatever sessions and prepared transactions it has; one that is not there is no error.
pub(crate) fn drop_database(name: &str, clerks: &Clerks) -> Result<(), LeaseError> {
    let drop = || {
        clerks
            .run("drop a database", &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", identifier(name)))
            .map(drop)
    };
    match drop() {
        // FORCE does not mean prepared transactions, and they can be rolled back from within only.
        Err(error) if error.sqlstate() == "55006" => {
            let mut session = clerks.open(name)?;
            let rolled_back = roll_back_prepared(&mut session);
            rolled_back
                .map_err(|source| LeaseError::Sql { verb: "roll back prepared transactions", source })?;
            std::mem::drop(session);
            drop()
        }
        other => other,
    }
}
