//! Reads a template's catalog, which lists everything that a session can
//! change in a copy, along with the data needed to undo the changes.
//!
//! Copies consist of the template's files, so they all have the same oids and file numbers. Reading the catalog once,
//! in one of the first copies, is therefore enough.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use server::{AdminConnection, Rows, SessionError, literal};

use crate::admin::{ascii, number, text, union};
use crate::reset::digest::{Digest, ROW, digest_of, rows_of};
use crate::reset::expressions::{DEPENDENT, MAY_LEAVE_TRACES};

/// Maximum size of a table on disk, in bytes and including TOAST. pgfresh doesn't hold the rows of larger tables in
/// memory, so it can't restore them.
const LARGEST_SEED: u64 = 256 << 10;
/// Maximum size of one table's rows in memory, in bytes. Rows can take more space there than on disk, where the server
/// may compress values. COPY also needs more bytes for rows with many columns.
const LARGEST_ROWS: usize = 1 << 20;
/// Maximum size of the rows of all tables of a template in memory, in bytes.
const MOST_ROWS: usize = 16 << 20;
/// Types whose binary output the server reads back exactly, regardless of the session's
/// settings. A user-defined type is exact if it consists only of these types.
const EXACT_TYPES: &str = "bool,bytea,char,name,int8,int2,int4,text,oid,json,float4,float8,money,bpchar,varchar,date,\
    time,timestamp,timestamptz,interval,timetz,bit,varbit,numeric,uuid,jsonb,inet,cidr,macaddr,macaddr8,point,lseg,path,\
    box,polygon,line,circle,int4range,int8range,numrange,tsrange,tstzrange,daterange,tsvector,xid,pg_lsn";

/// Everything in a template that has rows or a value. Fields that may differ between servers on the same files are
/// skipped, so the note in the cache entry doesn't contain them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct TemplateCatalog {
    pub(crate) tables: HashMap<u32, Table>,
    pub(crate) sequences: HashMap<u32, Sequence>,
    /// The server's major version.
    #[serde(skip)]
    pub(crate) major: u32,
    /// A copy's attributes, as in [`DatabaseStats`](crate::reset::stats::DatabaseStats).
    #[serde(skip)]
    pub(crate) attributes: String,
    /// Rows of `pg_class`, by oid.
    pub(crate) classes: HashMap<u32, Class>,
    /// The template's horizon, selected by [`HORIZON`]. Rows written by this transaction or a later one are new.
    #[serde(skip)]
    pub(crate) horizon: String,
    /// Oids of unlogged tables and sequences. Changes to their contents don't appear in the log.
    #[serde(skip)]
    pub(crate) unlogged: (Vec<u32>, Vec<u32>),
    /// Catalogs other than `pg_class`, by oid.
    pub(crate) catalogs: HashMap<u32, Catalog>,
    /// Digests of the rows in these catalogs.
    #[serde(skip)]
    pub(crate) digests: Digests,
    /// The content of each file, by file number.
    #[serde(skip)]
    pub(crate) files: FileMap,
    /// Digest of the whole database, set only with `paranoid` enabled.
    #[serde(skip)]
    pub(crate) digest: Option<Digest>,
}

/// A row of `pg_class`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Class {
    /// Digest of the row, excluding columns that TRUNCATE, VACUUM or ANALYZE changes.
    pub(crate) digest: String,
    /// Values of [`planner_columns`], separated by commas.
    pub(crate) planner: String,
    /// Values selected by [`select_in_place`].
    pub(crate) in_place: String,
    /// The number and content of the relation's file. The number is 0 if the relation has no file in this database.
    file: (u32, Content),
}

/// A catalog and its number of rows in the template.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Catalog {
    pub(crate) name: String,
    pub(crate) rows: u64,
}

/// Digests of the rows in catalogs, by catalog name. Few resets need the digests, and reading them takes longer than
/// reading everything else about a template (60 ms even without tables). So pgfresh reads them only on request.
#[derive(Debug, Default)]
pub(crate) struct Digests {
    known: OnceLock<HashMap<String, String>>,
    wanted: AtomicBool,
}

impl Digests {
    /// Returns all digests. If pgfresh hasn't read any yet, requests them and returns `None`.
    pub(crate) fn ask(&self) -> Option<&HashMap<String, String>> {
        let known = self.known.get();
        self.wanted.store(known.is_none(), Ordering::Relaxed);
        known
    }

    /// Stores the digests.
    pub(crate) fn know(&self, digests: HashMap<String, String>) {
        self.known.get_or_init(|| digests);
        self.wanted.store(false, Ordering::Relaxed);
    }

    /// Returns true if a reset has requested digests that pgfresh hasn't read yet.
    pub(crate) fn are_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Cancels the request after an error. The next reset that needs the digests requests them again.
    pub(crate) fn give_up(&self) {
        self.wanted.store(false, Ordering::Relaxed);
    }
}

/// The content of each file in a database, by file number. Clones share the map.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FileMap(Arc<HashMap<u32, (Oid, Content)>>);

/// Oid of the relation that a file belongs to.
type Oid = u32;

/// The kind of data in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Content {
    /// Rows or TOAST values of the user table with this oid.
    Table(u32),
    Sequence(u32),
    /// An index, whose content follows from the table's.
    Index,
    /// `pg_class` itself.
    Classes,
    /// The catalog with this oid, which isn't `pg_class`.
    Catalog(u32),
    /// TOAST values of the catalog with this oid.
    CatalogValues(u32),
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Table {
    /// Qualified name, quoted for SQL in any session.
    pub(crate) name: String,
    /// Oids of the table, its indexes, its TOAST table and the TOAST index.
    pub(crate) relations: Vec<u32>,
    pub(crate) rows: Seed,
    /// Whether other tables have foreign keys to this table. If so, it can't be truncated alone.
    pub(crate) referenced: bool,
    /// Whether the table is unlogged, meaning that the log doesn't contain its rows.
    pub(crate) unlogged: bool,
    /// Whether the server refuses to delete rows, because a publication couldn't identify the deleted rows.
    pub(crate) undeletable: bool,
}

/// The rows that a table has in the template.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Seed {
    Empty,
    /// Rows in the format of `COPY … (FORMAT binary)`.
    Rows(#[serde(with = "crate::reset::note::base64")] Vec<u8>),
    /// Rows that pgfresh can't restore, with the reason.
    Fixed(Reason),
}

/// The reason why pgfresh can't restore a table's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reason {
    MaterialisedView,
    AlwaysFires,
    Uncopied,
    Large,
}

impl Reason {
    /// Returns the reason as text, for the report about a lease that changed the table.
    pub(crate) fn why(self) -> &'static str {
        match self {
            Self::MaterialisedView => "a materialized view was refreshed",
            Self::AlwaysFires => "a table with triggers or rules that always fire was touched",
            Self::Uncopied => "a table whose rows cannot be copied was touched",
            Self::Large => "a large table with rows in the template was touched",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sequence {
    pub(crate) name: String,
    pub(crate) last_value: i64,
    pub(crate) is_called: bool,
    /// Whether the sequence is unlogged, meaning that the log doesn't contain its value.
    pub(crate) unlogged: bool,
}

/// Makes the server send rows in the database's encoding for the rest of the transaction. Otherwise, a text might not
/// survive the conversion to another encoding and back.
pub(crate) const AS_STORED: &str =
    "SELECT pg_catalog.set_config('client_encoding', pg_catalog.getdatabaseencoding(), true)";

/// Selects user tables, materialized views and sequences. Oids below 16384 belong to relations created by initdb.
/// Source: `FirstNormalObjectId` in `src/include/access/transam.h`.
const RELATIONS: &str = "SELECT c.oid, quote_ident(n.nspname) || '.' || quote_ident(c.relname), c.relkind, \
    getdatabaseencoding() = 'SQL_ASCII', \
    pg_relation_size(c.oid) + coalesce(pg_relation_size(nullif(c.reltoastrelid, 0)), 0) AS bytes, c.relpersistence = 'u', \
    c.oid IN (SELECT k.confrelid FROM pg_constraint k WHERE k.conrelid <> k.confrelid), \
    EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgenabled IN ('A', 'R')) \
    OR EXISTS (SELECT FROM pg_rewrite r WHERE r.ev_class = c.oid AND r.ev_enabled IN ('A', 'R')), \
    array_to_string(ARRAY(SELECT c.oid UNION ALL SELECT c.reltoastrelid WHERE c.reltoastrelid <> 0 \
      UNION ALL SELECT i.indexrelid FROM pg_index i WHERE i.indrelid IN (c.oid, c.reltoastrelid)), ',') \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relkind IN ('r', 'm', 'S') AND c.relpersistence <> 't' AND c.oid >= 16384 ORDER BY bytes, c.oid";

/// Selects tables that pgfresh must not refill, because their rows or indexes could then differ from the template's. A
/// type may parse its input depending on the session or with user-defined code, and a generated column may depend on an
/// object that users can change. An index or a check may call a user-defined function in a language other than C, whose
/// result may depend on the session even if the function is declared immutable.
const INEXACT: &str = "WITH RECURSIVE part(rel, typ) AS ( \
    SELECT a.attrelid, a.atttypid FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid \
    WHERE c.oid >= 16384 AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped \
    UNION SELECT p.rel, x.typ FROM part p JOIN pg_type t ON t.oid = p.typ CROSS JOIN LATERAL ( \
      SELECT t.typbasetype WHERE t.typtype = 'd' \
      UNION ALL SELECT t.typelem WHERE t.typcategory = 'A' AND t.typelem <> 0 \
      UNION ALL SELECT a.atttypid FROM pg_attribute a \
        WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped) x(typ)), \
    written(class, oid) AS ( \
      SELECT 'pg_proc'::regclass::oid, p.oid FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang \
        WHERE p.oid >= 16384 AND l.lanname NOT IN ('internal', 'c') \
      UNION SELECT x.class, x.oid FROM written w CROSS JOIN LATERAL ( \
        SELECT 'pg_operator'::regclass::oid, o.oid FROM pg_operator o WHERE w.class = 'pg_proc'::regclass AND o.oprcode = w.oid \
        UNION ALL SELECT 'pg_opclass'::regclass::oid, c.oid FROM pg_amproc s JOIN pg_opclass c ON c.opcfamily = s.amprocfamily \
          WHERE w.class = 'pg_proc'::regclass AND s.amproc = w.oid AND c.oid >= 16384 \
        UNION ALL SELECT 'pg_opclass'::regclass::oid, c.oid FROM pg_amop s JOIN pg_opclass c ON c.opcfamily = s.amopfamily \
          WHERE w.class = 'pg_operator'::regclass AND s.amopopr = w.oid AND c.oid >= 16384) x(class, oid)), \
    computed(class, oid) AS (SELECT d.classid, d.objid FROM pg_depend d JOIN written w ON d.refclassid = w.class AND d.refobjid = w.oid) \
    SELECT p.rel FROM part p JOIN pg_type t ON t.oid = p.typ \
    WHERE NOT (t.typtype IN ('e', 'd', 'c') OR t.typcategory = 'A' AND t.typelem <> 0 \
      OR t.oid < 16384 AND t.typname = ANY (string_to_array($types$, ','))) \
    UNION SELECT f.adrelid FROM pg_attrdef f JOIN pg_attribute a ON a.attrelid = f.adrelid AND a.attnum = f.adnum \
    JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid \
    OR d.classid = 'pg_class'::regclass AND d.objid = f.adrelid AND d.objsubid = f.adnum \
    WHERE a.attgenerated <> '' AND d.refclassid <> 'pg_class'::regclass AND d.refobjid >= 16384 \
    UNION SELECT i.indrelid FROM pg_index i JOIN computed c ON c.class = 'pg_class'::regclass AND c.oid = i.indexrelid \
    UNION SELECT k.conrelid FROM pg_constraint k JOIN computed c ON c.class = 'pg_constraint'::regclass AND c.oid = k.oid \
    UNION SELECT p.rel FROM part p JOIN pg_constraint k ON k.contypid = p.typ \
    JOIN computed c ON c.class = 'pg_constraint'::regclass AND c.oid = k.oid";

/// Selects tables with a constraint that the server never validated (NOT VALID), because the constraint may
/// reject the table's own rows. If the constraint belongs to a domain, every table with columns of
/// user-defined types is selected. Constraints that aren't enforced don't count, since they reject nothing.
const UNVALIDATED: &str = "WITH unvalidated AS (SELECT conrelid, contypid FROM pg_constraint k \
    WHERE NOT convalidated AND contype IN ('c', 'n') AND coalesce(to_jsonb(k) ->> 'conenforced', 'true') = 'true') \
    SELECT conrelid FROM unvalidated WHERE conrelid <> 0 \
    UNION SELECT attrelid FROM pg_attribute WHERE atttypid >= 16384 AND attnum > 0 AND NOT attisdropped \
    AND EXISTS (SELECT FROM unvalidated WHERE contypid <> 0)";

/// Selects whether any publication includes DELETE.
const PUBLISHES: &str = "SELECT EXISTS (SELECT FROM pg_publication WHERE pubdelete)";

/// Selects a condition for each table that finds values compressed with a different method than new values would be.
/// Requires PostgreSQL 14 or later.
const COMPRESSION: &str = "SELECT attrelid, string_agg(format('pg_column_compression(%I) = %L', attname, \
    CASE attcompression WHEN 'l' THEN 'pglz' ELSE 'lz4' END), ' OR ') FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid \
    WHERE attrelid >= 16384 AND relkind = 'r' AND attnum > 0 AND NOT attisdropped AND attlen = -1 AND attgenerated = '' \
    GROUP BY attrelid";

/// Returns a query for `pg_class` rows, including those of shared catalogs. The first columns are the oid, the file
/// (even for a mapped catalog), the kind, and the table that a TOAST table belongs to. They are followed by the
/// planner's values, the values that may change in place, and a digest of everything that TRUNCATE, VACUUM and ANALYZE
/// don't change. Reading all rows takes a few milliseconds.
pub(crate) fn select_classes(major: u32, condition: &str) -> String {
    let planner =
        planner_columns(major).map(|column| format!("c.{column}")).collect::<Vec<_>>().join(", ', ', ");
    format!(
        "SELECT c.oid, CASE WHEN NOT c.relisshared THEN pg_relation_filenode(c.oid) END, c.relkind, coalesce(t.oid, c.oid), \
         concat({planner}), \
         {}, md5(textin(jsonb_out(to_jsonb(c) - '{{relfilenode,relpages,reltuples,relallvisible,relallfrozen,relfrozenxid,relminmxid}}'::text[]))) \
         FROM pg_class c LEFT JOIN pg_class t ON c.relkind = 't' AND t.reltoastrelid = c.oid {condition}",
        in_place(major)
    )
}

/// Returns the `pg_class` columns that tell the planner how large a relation is.
pub(crate) fn planner_columns(major: u32) -> impl Iterator<Item = &'static str> {
    let since_18 = server::Major(major).has_relallfrozen().then_some("relallfrozen");
    ["relpages", "reltuples", "relallvisible"].into_iter().chain(since_18)
}

/// Returns a query over all `pg_class` rows for the file and the columns that the server may change in place (outside
/// transactions), except the age of the oldest row. Source: `vac_update_relstats()` and `index_update_stats()`.
pub(crate) fn select_in_place(major: u32) -> String {
    format!("SELECT c.oid, {} FROM pg_class c", in_place(major))
}

fn in_place(major: u32) -> String {
    let frozen = if server::Major(major).has_relallfrozen() { ", c.relallfrozen" } else { "" };
    format!(
        "concat_ws(' ', c.relfilenode, c.relpages, c.reltuples, c.relallvisible, c.relhasindex, c.relhasrules, c.relhastriggers{frozen})"
    )
}

/// An SQL expression for the horizon, the oldest transaction still running.
pub(crate) const HORIZON: &str = "pg_snapshot_xmin(pg_current_snapshot())::text::numeric % 4294967296";

/// Returns an SQL condition for rows written by the transaction `horizon` or a later one.
pub(crate) fn is_since(horizon: &str, xmin: &str) -> String {
    format!("pg_catalog.age({xmin}) <= pg_catalog.age('{horizon}'::pg_catalog.xid)")
}

/// Selects all catalogs of a database except `pg_class`, which needs special treatment because TRUNCATE changes columns
/// that define nothing.
const CATALOGS: &str = "SELECT oid, 'pg_catalog.' || relname FROM pg_class WHERE relkind = 'r' AND NOT relisshared \
    AND relnamespace = 'pg_catalog'::regnamespace AND oid < 16384 AND oid <> 1259";

/// Returns the SQL and the limits used to read the part of a catalog that goes into a note. Each note contains a
/// checksum of this text, so pgfresh ignores notes from versions that read catalogs differently. Session settings
/// aren't included.
pub(crate) fn queries(major: u32) -> String {
    let classes = select_classes(major, "");
    let sizes = format!("{LARGEST_SEED} {LARGEST_ROWS} {MOST_ROWS}");
    let exact = [INEXACT, EXACT_TYPES, DEPENDENT, COMPRESSION, UNVALIDATED, PUBLISHES];
    [&[&classes, RELATIONS, AS_STORED][..], &exact, &[CATALOGS, MAY_LEAVE_TRACES, &sizes]].concat().join("\n")
}

impl Class {
    /// Parses the rows of [`select_classes`], keyed by oid.
    pub(crate) fn read(rows: &Rows) -> HashMap<u32, Self> {
        let class = |row: &Vec<Option<String>>| {
            let column = |at: usize| row.get(at).and_then(Option::as_deref).unwrap_or_default();
            let (oid, file, owner) = (number(column(0)), number(column(1)), number(column(3)));
            let content = match column(2) {
                "i" => Content::Index,
                // The oid of `pg_class`. Source: `src/include/catalog/pg_class.h`.
                _ if oid == 1259 => Content::Classes,
                "t" if owner < 16384 => Content::CatalogValues(owner),
                _ if owner < 16384 => Content::Catalog(owner),
                "S" => Content::Sequence(oid),
                _ => Content::Table(owner),
            };
            let [planner, in_place, digest] = [4, 5, 6].map(|at| column(at).to_owned());
            (oid, Self { digest, planner, in_place, file: (file, content) })
        };
        rows.iter().map(class).collect()
    }
}

impl FileMap {
    /// Returns the files of the relations in `rows`, taking those of all other relations from `before`.
    pub(crate) fn new(rows: &HashMap<u32, Class>, before: &HashMap<u32, Class>) -> Self {
        let others = before.iter().filter(|(oid, _)| !rows.contains_key(oid));
        let files =
            others.chain(rows).map(|(oid, Class { file: (file, content), .. })| (*file, (*oid, *content)));
        Self(Arc::new(files.filter(|(file, _)| *file != 0).collect()))
    }

    pub(crate) fn get(&self, file: u32) -> Option<Content> {
        self.0.get(&file).map(|(_, content)| *content)
    }

    /// Returns true if a file belongs to a user table's TOAST table.
    pub(crate) fn is_toast(&self, file: u32) -> bool {
        matches!(self.0.get(&file), Some((oid, Content::Table(owner))) if oid != owner)
    }

    /// Returns the oids of tables and sequences that have a different file than in `before`. Returns `None` if a
    /// catalog has a new file, which can contain anything, or if a file now belongs to another relation. No statement
    /// reassigns files, but a session that writes to `pg_class` can.
    pub(crate) fn moved_since(&self, before: &Self) -> Option<HashSet<u32>> {
        let mut moved = HashSet::new();
        for (file, (oid, content)) in self.0.iter() {
            match (before.0.get(file), content) {
                (Some((same, _)), _) if same == oid => {}
                (None, Content::Table(oid) | Content::Sequence(oid)) => drop(moved.insert(*oid)),
                (None, Content::Index) => {}
                _ => return None,
            }
        }
        Some(moved)
    }
}

impl TemplateCatalog {
    /// Reads the catalog from a copy that has these attributes and that no client has used. The `horizon` must predate
    /// the first client that received a copy.
    pub(crate) fn read(
        session: &mut AdminConnection,
        attributes: String,
        horizon: String,
        major: u32,
        paranoid: bool,
    ) -> Result<Self, SessionError> {
        let classes = Class::read(&session.query(&select_classes(major, ""))?);
        let mut catalog = Self {
            major,
            attributes,
            files: FileMap::new(&classes, &HashMap::new()),
            classes,
            horizon,
            digest: if paranoid { Some(Digest::read(session)?) } else { None },
            ..Self::default()
        };
        let inexact_sql = INEXACT.replace("$types$", &literal(EXACT_TYPES));
        let mut inexact = HashSet::new();
        for query in [&*inexact_sql, DEPENDENT, UNVALIDATED] {
            inexact.extend(oids(&session.query(query)?));
        }
        let publishes = text(&session.query(PUBLISHES)?) == "t";
        let compression: HashMap<u32, String> = if server::Major(major).has_column_compression() {
            session.query(COMPRESSION)?.into_iter().filter_map(pair).collect()
        } else {
            HashMap::new()
        };
        let mut sequences = Vec::new();
        let mut room = MOST_ROWS;
        for row in session.query(RELATIONS)? {
            let mut columns = row.into_iter().map(Option::unwrap_or_default);
            let mut next = || columns.next().unwrap_or_default();
            let (oid, name, kind) = (number(&next()), next(), next());
            let name = in_any_encoding(name, next() == "t")?;
            let (bytes, unlogged) = (next().parse::<u64>().unwrap_or(0), next() == "t");
            let (referenced, always_fires) = (next() == "t", next() == "t");
            let relations = next().split(',').map(number).collect();
            if kind == "S" {
                sequences.push((oid, name, unlogged));
                continue;
            }
            let rows = match kind.as_str() {
                "m" => Seed::Fixed(Reason::MaterialisedView),
                _ if always_fires => Seed::Fixed(Reason::AlwaysFires),
                _ if bytes == 0 => Seed::Empty,
                _ if inexact.contains(&oid) => Seed::Fixed(Reason::Uncopied),
                _ => seed(session, &name, bytes, &mut room, compression.get(&oid))?,
            };
            let undeletable = publishes && kind == "r" && is_undeletable(session, &name)?;
            catalog.tables.insert(oid, Table { name, relations, rows, referenced, unlogged, undeletable });
        }
        catalog.catalogs = read_catalogs(session)?;
        catalog.sequences = read_sequences(session, &sequences)?;
        let tables = catalog.tables.iter().filter(|(_, table)| table.unlogged).map(|(oid, _)| *oid);
        let sequences =
            catalog.sequences.iter().filter(|(_, sequence)| sequence.unlogged).map(|(oid, _)| *oid);
        catalog.unlogged = (tables.collect(), sequences.collect());
        Ok(catalog)
    }

    /// Returns true if both catalogs would produce the same note.
    pub(crate) fn has_same_note(&self, other: &Self) -> bool {
        self.tables == other.tables
            && self.sequences == other.sequences
            && self.classes == other.classes
            && self.catalogs == other.catalogs
    }

    /// Completes a catalog from a note with this server's values: the attributes of its copies, its major version and
    /// the `horizon` (see [`Self::read`]).
    pub(crate) fn recalled(self, attributes: String, horizon: String, major: u32) -> Self {
        let files = FileMap::new(&self.classes, &HashMap::new());
        Self { major, attributes, horizon, files, ..self }
    }

    /// Reads the digests from a copy that no client has used.
    pub(crate) fn read_digests(
        &self,
        session: &mut AdminConnection,
    ) -> Result<HashMap<String, String>, SessionError> {
        let digests: Vec<_> = self.catalogs.values().map(|catalog| digest_of(&catalog.name, ROW)).collect();
        let rows = union(session, &digests)?;
        let both = |row: Vec<Option<String>>| {
            let mut columns = row.into_iter().map(Option::unwrap_or_default);
            Some((columns.next()?, columns.next()?))
        };
        Ok(rows.into_iter().filter_map(both).collect())
    }

    /// Returns the qualified names of all tables, quoted for SQL.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.tables.values().map(|table| table.name.as_str()).collect()
    }
}

/// Reads oids from the first column.
fn oids(rows: &Rows) -> HashSet<u32> {
    rows.iter().filter_map(|row| Some(number(row.first()?.as_deref()?))).collect()
}

/// Returns true if the server refuses to delete the table's rows, because the table doesn't have a key or a publication
/// selects rows by columns outside the key. EXPLAIN reports this error, too. Source: `CheckCmdReplicaIdentity`.
fn is_undeletable(session: &mut AdminConnection, name: &str) -> Result<bool, SessionError> {
    match session.query(&format!("EXPLAIN DELETE FROM ONLY {name}")) {
        Ok(_) => Ok(false),
        Err(SessionError::Server { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Reads all catalogs except `pg_class`.
fn read_catalogs(session: &mut AdminConnection) -> Result<HashMap<u32, Catalog>, SessionError> {
    let names: HashMap<String, u32> =
        session.query(CATALOGS)?.into_iter().filter_map(pair).map(|(oid, name)| (name, oid)).collect();
    let counts = |name: &String| format!("SELECT {}, count(*) FROM {}", literal(name), rows_of(name));
    let rows = union(session, &names.keys().map(counts).collect::<Vec<_>>())?;
    let found = rows.into_iter().filter_map(|row| {
        let mut columns = row.into_iter().map(Option::unwrap_or_default);
        let (name, rows) = (columns.next()?, columns.next()?.parse().ok()?);
        Some((*names.get(&name)?, Catalog { name, rows }))
    });
    Ok(found.collect())
}

/// Reads an oid and a text.
pub(crate) fn pair(row: Vec<Option<String>>) -> Option<(u32, String)> {
    let mut columns = row.into_iter();
    Some((number(&columns.next()??), columns.next()??))
}

/// Rewrites a name so that it means the same in any client encoding. In `SQL_ASCII` databases, the server converts
/// nothing and names are just bytes, so the name must be UTF-8.
fn in_any_encoding(name: String, is_ascii: bool) -> Result<String, SessionError> {
    if !is_ascii {
        return Ok(ascii(&name));
    }
    if !name.contains(char::REPLACEMENT_CHARACTER) {
        return Ok(name);
    }
    let message = format!("the name {name} is not UTF-8, in a database with SQL_ASCII");
    // Character not in repertoire.
    let (severity, sqlstate) = ("ERROR".to_owned(), "22021".to_owned());
    Err(SessionError::Server { severity, sqlstate, message, notes: Box::default() })
}

/// Reads the rows of a table that occupies `size` bytes on disk. If the rows fit into `room`, subtracts their length
/// from it.
fn seed(
    session: &mut AdminConnection,
    name: &str,
    size: u64,
    room: &mut usize,
    compression: Option<&String>,
) -> Result<Seed, SessionError> {
    if session.query(&format!("SELECT FROM ONLY {name} LIMIT 1"))?.is_empty() {
        return Ok(Seed::Empty);
    }
    if size > LARGEST_SEED {
        return Ok(Seed::Fixed(Reason::Large));
    }
    if let Some(condition) = compression
        && !session.query(&format!("SELECT FROM ONLY {name} WHERE {condition} LIMIT 1"))?.is_empty()
    {
        return Ok(Seed::Fixed(Reason::Uncopied));
    }
    let (mut rows, mut bytes) = (Vec::new(), 0);
    let most = LARGEST_ROWS.min(*room);
    let copy = format!("{AS_STORED}; COPY {name} TO STDOUT (FORMAT binary)");
    let mut keep = |row: &[u8]| {
        bytes += row.len();
        if bytes > most {
            rows = Vec::new();
        } else {
            rows.extend_from_slice(row);
        }
    };
    match session.copy_out(&copy, &mut keep) {
        Ok(()) if bytes > most => Ok(Seed::Fixed(Reason::Large)),
        Ok(()) => {
            *room -= rows.len();
            Ok(Seed::Rows(rows))
        }
        // A column's type doesn't have a binary output format.
        Err(SessionError::Server { .. }) => Ok(Seed::Fixed(Reason::Uncopied)),
        Err(error) => Err(error),
    }
}

/// Reads the values of sequences, each given by its oid, its name and whether it is unlogged.
pub(crate) fn read_sequences(
    session: &mut AdminConnection,
    sequences: &[(u32, String, bool)],
) -> Result<HashMap<u32, Sequence>, SessionError> {
    let select = |(oid, name, unlogged): &(u32, String, bool)| {
        format!("SELECT {oid}, {}, last_value, is_called, {unlogged} FROM {name}", literal(name))
    };
    let selects: Vec<_> = sequences.iter().map(select).collect();
    let found = union(session, &selects)?.into_iter().map(|row| {
        let mut columns = row.into_iter().map(Option::unwrap_or_default);
        let mut next = || columns.next().unwrap_or_default();
        let (oid, name) = (number(&next()), next());
        let (last_value, is_called) = (next().parse().unwrap_or(0), next() == "t");
        (oid, Sequence { name, last_value, is_called, unlogged: next() == "t" })
    });
    Ok(found.collect())
}
