//! Reads passwords from `~/.pgpass`, or from the file that `PGPASSFILE` names.
//!
//! Source: `passwordFromFile` in `src/interfaces/libpq/fe-connect.c`.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::error::ImportError;

/// A connection that needs a password.
pub(super) struct Login<'a> {
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) database: &'a str,
    pub(super) user: &'a str,
}

/// Returns the password for `login`. `None` if the file doesn't contain one.
pub(super) fn find(path: &Path, login: &Login<'_>) -> Result<Option<String>, ImportError> {
    let failed = |reason: String| ImportError::File { path: path.to_owned(), reason };
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(failed(error.to_string())),
    };
    if !metadata.is_file() {
        return Ok(None);
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(failed("other users may read it: set its mode to 600".to_owned()));
    }
    let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    Ok(text.lines().find_map(|line| password(line, login)))
}

/// Returns the password in a line `host:port:database:user:password` if the line matches `login`.
fn password(line: &str, login: &Login<'_>) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let mut rest = line;
    let port = login.port.to_string();
    for expected in [login.host, &port, login.database, login.user] {
        let (field, after) = field(rest)?;
        if field != "*" && unescaped(field) != expected {
            return None;
        }
        rest = after;
    }
    Some(unescaped(field(rest).map_or(rest, |(password, _)| password)))
}

/// Splits a line at the first colon that isn't escaped with a backslash.
fn field(line: &str) -> Option<(&str, &str)> {
    let mut is_escaped = false;
    let end = line.find(|character| {
        let ends = character == ':' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        ends
    })?;
    Some((&line[..end], &line[end + 1..]))
}

fn unescaped(text: &str) -> String {
    let mut characters = text.chars();
    let mut result = String::new();
    while let Some(character) = characters.next() {
        result.push(if character == '\\' { characters.next().unwrap_or('\\') } else { character });
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_fitting_line_has_the_password() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passwords");
        let login = Login { host: "::1", port: 5432, database: "a:b", user: "me" };
        assert_eq!(find(&path, &login).unwrap(), None);
        let lines =
            "# ::1:*:*:*:comment\nother:*:*:*:wrong\n\\:\\:1:5432:a\\:b:me:se\\:cr\\\\et\n*:*:*:*:late\n";
        fs::write(&path, lines).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(find(&path, &login).unwrap_err().to_string().contains("set its mode to 600"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(find(&path, &login).unwrap().as_deref(), Some("se:cr\\et"));
        let other = Login { user: "you", ..login };
        assert_eq!(find(&path, &other).unwrap().as_deref(), Some("late"));
    }
}
