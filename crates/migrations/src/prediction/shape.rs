//! Reads a statement's shape: the parts of its text that determine how its time grows with the number of rows.

use pgwire::Token;

use crate::sql_text::tokens;

/// Parts of a statement's text that determine how its time grows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) kind: Kind,
    /// Indexes that the statement creates. Indexes that it rebuilds aren't here, because they are observed as rewrites.
    pub(super) builds: Vec<Build>,
    /// Whether the statement checks a foreign key for existing rows.
    pub(super) checks_reference: bool,
    /// Whether the statement writes a query's rows into a new table.
    pub(super) stores_rows: bool,
    /// Whether a WHERE clause may exclude rows.
    pub(super) has_condition: bool,
    /// Name of the table that the statement changes, with a schema if the text has one.
    pub(super) target: Option<(Option<String>, String)>,
    /// All names and keywords. Unquoted ones are lowercase.
    pub(super) words: Vec<String>,
}

/// Kind of a statement, which determines how its cost is estimated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// DDL such as ALTER TABLE. It does nothing beyond the observed scans and rewrites.
    #[default]
    Definition,
    /// UPDATE or MERGE.
    Update,
    Delete,
    Insert,
    /// A statement that runs a query or code, however complex, such as SELECT, DO, or CREATE TABLE AS.
    Query,
}

/// An index that the statement creates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Build {
    /// The indexed columns. `None` stands for an expression.
    pub(super) columns: Vec<Option<String>>,
    /// Access method, such as `btree`.
    pub(super) method: String,
    /// Whether the index covers only some rows.
    pub(super) is_partial: bool,
}

impl Shape {
    /// Reads the shape of a single statement.
    pub(super) fn read(sql: &str) -> Self {
        let tokens = tokens(sql);
        let words = tokens.iter().filter_map(Token::name).collect();
        let mut shape = Self { words, has_condition: has(&tokens, b"where"), ..Self::default() };
        let is = |at: usize, word: &str| tokens.get(at).is_some_and(|token| token.is_word(word.as_bytes()));
        if is(0, "create") && (is(1, "index") || is(1, "unique") && is(2, "index")) {
            shape.builds.extend(index(&tokens));
        } else if is(0, "alter") && is(1, "table") {
            shape.read_alter(&tokens);
        } else if is(0, "create") && (is(1, "table") || is(1, "unlogged") || is(1, "materialized")) {
            shape.stores_rows = has(&tokens, b"as") && !has_pair(&tokens, b"no", b"data");
            shape.kind = if shape.stores_rows { Kind::Query } else { Kind::Definition };
        } else if is(0, "refresh")
            || ["select", "do", "call", "execute", "values"].iter().any(|word| is(0, word))
        {
            shape.kind = Kind::Query;
            shape.stores_rows = is(0, "select") && has(&tokens, b"into");
        } else if ["update", "delete", "insert", "merge", "with"].iter().any(|word| is(0, word)) {
            shape.read_change(&tokens);
        }
        shape
    }

    /// Reads the actions of an ALTER TABLE.
    fn read_alter(&mut self, tokens: &[Token<'_>]) {
        let mut depth = 0_usize;
        let mut start = 0;
        for (at, token) in tokens.iter().enumerate() {
            match (token.is_sign(b'('), token.is_sign(b')')) {
                (true, _) => depth += 1,
                (_, true) => depth = depth.saturating_sub(1),
                _ if token.is_sign(b',') && depth == 0 => {
                    self.read_action(&tokens[start..at]);
                    start = at + 1;
                }
                _ => {}
            }
        }
        self.read_action(&tokens[start..]);
    }

    fn read_action(&mut self, action: &[Token<'_>]) {
        let is_valid = !has_pair(action, b"not", b"valid");
        self.checks_reference |= is_valid && (has(action, b"references") || has(action, b"validate"));
        let Some(add) = action.iter().position(|token| token.is_word(b"add")) else { return };
        let key = action.iter().enumerate().skip(add).find(|(at, token)| {
            token.is_word(b"unique")
                || token.is_word(b"exclude")
                || token.is_word(b"key") && action[at - 1].is_word(b"primary")
        });
        let Some((key, token)) = key.filter(|_| !has_pair(action, b"using", b"index")) else { return };
        let method = if token.is_word(b"exclude") { "gist" } else { "btree" };
        let after = &action[key + 1..];
        let columns = match after.iter().position(|token| token.is_sign(b'(')) {
            Some(open) => columns(&after[open..]),
            // The constraint belongs to a new column.
            None => Vec::new(),
        };
        self.builds.push(Build { columns, method: method.to_owned(), is_partial: false });
    }

    /// Reads UPDATE, DELETE, INSERT and MERGE, even after WITH.
    fn read_change(&mut self, tokens: &[Token<'_>]) {
        let verb = |token: &Token<'_>| {
            let verbs: [(&[u8], Kind); 4] = [
                (b"update", Kind::Update),
                (b"delete", Kind::Delete),
                (b"insert", Kind::Insert),
                (b"merge", Kind::Update),
            ];
            verbs.into_iter().find_map(|(word, kind)| token.is_word(word).then_some(kind))
        };
        let found = tokens.iter().enumerate().find_map(|(at, token)| Some((at, verb(token)?)));
        let Some((at, kind)) = found else {
            self.kind = Kind::Query;
            return;
        };
        self.kind = kind;
        let skipped =
            |token: &&Token<'_>| [&b"from"[..], b"into", b"only"].iter().any(|word| token.is_word(word));
        let mut name = tokens[at + 1..].iter().skip_while(skipped);
        let Some(first) = name.next().and_then(Token::name) else { return };
        self.target = match (name.next(), name.next().and_then(Token::name)) {
            (Some(dot), Some(table)) if dot.is_sign(b'.') => Some((Some(first), table)),
            _ => Some((None, first)),
        };
    }
}

/// Reads the columns and the access method of a CREATE INDEX. Returns `None` if the text has no column list.
fn index(tokens: &[Token<'_>]) -> Option<Build> {
    let on = tokens.iter().position(|token| token.is_word(b"on"))?;
    let open = on + tokens[on..].iter().position(|token| token.is_sign(b'('))?;
    let method = match &tokens[open - 2..open] {
        [using, method] if using.is_word(b"using") => method.name()?,
        _ => "btree".to_owned(),
    };
    Some(Build { columns: columns(&tokens[open..]), method, is_partial: has(tokens, b"where") })
}

/// Returns the columns of a parenthesized list. `tokens` start with the opening parenthesis.
fn columns(tokens: &[Token<'_>]) -> Vec<Option<String>> {
    let mut columns = Vec::new();
    let (mut depth, mut is_first) = (0_usize, false);
    for (at, token) in tokens.iter().enumerate() {
        if token.is_sign(b'(') {
            depth += 1;
            if depth == 1 {
                is_first = true;
                continue;
            }
        } else if token.is_sign(b')') {
            depth -= 1;
            if depth == 0 {
                break;
            }
        } else if token.is_sign(b',') && depth == 1 {
            is_first = true;
            continue;
        }
        if is_first {
            let is_call = tokens.get(at + 1).is_some_and(|next| next.is_sign(b'('));
            columns.push(token.name().filter(|_| !is_call));
            is_first = false;
        }
    }
    columns
}

fn has(tokens: &[Token<'_>], word: &[u8]) -> bool {
    tokens.iter().any(|token| token.is_word(word))
}

fn has_pair(tokens: &[Token<'_>], first: &[u8], second: &[u8]) -> bool {
    tokens.windows(2).any(|pair| pair[0].is_word(first) && pair[1].is_word(second))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builds(sql: &str) -> Vec<(String, Vec<Option<String>>, bool)> {
        let builds = Shape::read(sql).builds.into_iter();
        builds.map(|build| (build.method, build.columns, build.is_partial)).collect()
    }

    fn named(columns: &[&str]) -> Vec<Option<String>> {
        columns.iter().map(|column| Some((*column).to_owned()).filter(|column| !column.is_empty())).collect()
    }

    #[test]
    fn indexes_to_build_have_columns_and_method() {
        for (sql, method, columns, is_partial) in [
            ("CREATE INDEX ON orders (status)", "btree", &["status"][..], false),
            (
                "create unique index concurrently if not exists a on s.\"O\" (a, \"B\" DESC)",
                "btree",
                &["a", "B"],
                false,
            ),
            ("CREATE INDEX a ON t USING gin (tags) WHERE x", "gin", &["tags"], true),
            ("CREATE INDEX a ON t (lower(a), (b || c), d COLLATE \"C\")", "btree", &["", "", "d"], false),
            ("ALTER TABLE t ADD PRIMARY KEY (id)", "btree", &["id"], false),
            ("ALTER TABLE t ADD CONSTRAINT u UNIQUE (a, b)", "btree", &["a", "b"], false),
            ("ALTER TABLE t ADD c int UNIQUE", "btree", &[], false),
            ("ALTER TABLE t ADD EXCLUDE USING gist (a WITH &&)", "gist", &["a"], false),
        ] {
            assert_eq!(builds(sql), [(method.to_owned(), named(columns), is_partial)], "{sql}");
        }
        for sql in [
            "ALTER TABLE t ADD CONSTRAINT u UNIQUE USING INDEX i",
            "ALTER TABLE t DROP CONSTRAINT u",
            "ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES u",
            "CREATE TABLE t (id int PRIMARY KEY)",
        ] {
            assert_eq!(builds(sql), [], "{sql}");
        }
        assert_eq!(builds("ALTER TABLE t ADD UNIQUE (a), ADD c numeric(1, 2), ADD UNIQUE (b)").len(), 2);
    }

    #[test]
    fn only_valid_foreign_keys_are_checked() {
        for (sql, checks) in [
            ("ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES u (id)", true),
            ("ALTER TABLE t VALIDATE CONSTRAINT f", true),
            ("ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES u NOT VALID", false),
            ("ALTER TABLE t ADD CHECK (a > 0)", false),
        ] {
            assert_eq!(Shape::read(sql).checks_reference, checks, "{sql}");
        }
    }

    #[test]
    fn changes_have_a_target() {
        for (sql, kind, schema, table, has_condition) in [
            ("UPDATE orders SET a = 1", Kind::Update, None, "orders", false),
            ("update only s.\"Orders\" set a = 1 where b", Kind::Update, Some("s"), "Orders", true),
            ("DELETE FROM orders WHERE a", Kind::Delete, None, "orders", true),
            ("INSERT INTO s.t (a) SELECT 1", Kind::Insert, Some("s"), "t", false),
            ("WITH x AS (SELECT 1) UPDATE t SET a = 1 FROM x", Kind::Update, None, "t", false),
            ("MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN DELETE", Kind::Update, None, "t", false),
        ] {
            let shape = Shape::read(sql);
            let target = Some((schema.map(str::to_owned), table.to_owned()));
            assert_eq!(
                (shape.kind, shape.target, shape.has_condition),
                (kind, target, has_condition),
                "{sql}"
            );
        }
        for sql in
            ["SELECT f()", "DO $$ BEGIN END $$", "CREATE TABLE a AS SELECT 1", "WITH x AS (SELECT 1) SELECT"]
        {
            assert_eq!(Shape::read(sql).kind, Kind::Query, "{sql}");
        }
        for sql in
            ["ALTER TABLE t ADD a int", "", "CREATE TABLE a (b int)", "VACUUM FULL t", "INSERT", "REINDEX"]
        {
            assert_eq!(Shape::read(sql).target, None, "{sql}");
        }
    }
}
