//! Reads server settings from a service's command, and decides which of these settings tests need.

/// A server setting of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerSetting {
    pub(crate) name: String,
    /// Value, or an empty text if the value may be a secret.
    pub(crate) value: String,
    pub(crate) decision: Decision,
}

/// Whether a setting goes into the configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Taken,
    /// The setting stays out for this reason.
    LeftOut(&'static str),
}

/// Settings that only affect durability.
const DURABILITY: [&str; 6] =
    ["fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "commit_delay", "commit_siblings"];
/// Settings that adapt the server to a machine and don't affect query results.
const SIZES: [&str; 16] = [
    "shared_buffers",
    "effective_cache_size",
    "maintenance_work_mem",
    "wal_buffers",
    "max_wal_size",
    "min_wal_size",
    "checkpoint_timeout",
    "checkpoint_completion_target",
    "huge_pages",
    "max_connections",
    "superuser_reserved_connections",
    "effective_io_concurrency",
    "max_worker_processes",
    "max_parallel_workers",
    "wal_keep_size",
    "autovacuum_naptime",
];

impl ServerSetting {
    pub(super) fn new(name: &str, value: &str) -> Self {
        let name = name.trim().replace('-', "_").to_ascii_lowercase();
        if is_secret(&name, value) {
            let decision = Decision::LeftOut("its value may be a secret");
            return Self { decision, name, value: String::new() };
        }
        let decision = decide(&name, value);
        Self { decision, name, value: value.to_owned() }
    }
}

/// Returns true if a setting's value may be a secret, such as a password, or a key from `.env`.
fn is_secret(name: &str, value: &str) -> bool {
    const LAST_WORDS: [&str; 10] = [
        "password",
        "passwd",
        "passphrase",
        "secret",
        "token",
        "key",
        "credentials",
        "conninfo",
        "dsn",
        "command",
    ];
    let last = name.rsplit(['.', '_']).next().unwrap_or_default();
    let has_password = value.contains("password=")
        || value
            .split_once("://")
            .is_some_and(|(_, rest)| rest.split('/').next().is_some_and(|host| host.contains('@')));
    LAST_WORDS.contains(&last) || has_password
}

fn decide(name: &str, value: &str) -> Decision {
    let is_refused = server::Settings::default().set(name, value).is_err();
    // After the start, pgfresh compares each value with what the server shows, so leave out values that the
    // server computes.
    let is_computed = value == "-1" || value.is_empty();
    if is_refused {
        Decision::LeftOut("pgfresh sets it, or its name is invalid")
    } else if DURABILITY.contains(&name) {
        Decision::LeftOut("test data need not survive a crash")
    } else if SIZES.contains(&name) {
        Decision::LeftOut("it tunes a server for a machine, and pgfresh sets its own value")
    } else if name.starts_with("log_") && name != "log_timezone" || name == "cluster_name" {
        Decision::LeftOut("it only changes the log")
    } else if name.starts_with("archive_") || name.starts_with("ssl") || name.starts_with("krb_") {
        Decision::LeftOut("it is for production servers")
    } else if value.starts_with('/') {
        Decision::LeftOut("it is a path in the container")
    } else if is_computed {
        Decision::LeftOut("the server computes it")
    } else {
        Decision::Taken
    }
}

/// Reads the options of `postgres`. If the command runs another program, adds a note.
pub(super) fn settings(command: &[String], notes: &mut Vec<String>) -> Vec<ServerSetting> {
    let mut settings = Vec::new();
    let mut words = command.iter().map(String::as_str).peekable();
    words.next_if(|word| word.ends_with("docker-entrypoint.sh"));
    if words.next_if(|word| matches!(word.rsplit('/').next(), Some("postgres"))).is_none()
        && let Some(other) = words.peek().filter(|word| !word.starts_with('-'))
    {
        notes.push(format!("command: \"{other}\" is not postgres, and pgfresh does not run it"));
        return settings;
    }
    while let Some(word) = words.next() {
        let (option, attached) = match word.strip_prefix("--") {
            Some(long) => ('c', long),
            None => match word.strip_prefix('-').and_then(|rest| Some((rest.chars().next()?, rest))) {
                Some((option, rest)) => (option, &rest[option.len_utf8()..]),
                None => continue,
            },
        };
        let mut value = || if attached.is_empty() { words.next().unwrap_or_default() } else { attached };
        match option {
            'c' => match value().split_once('=') {
                Some((name, value)) => settings.push(ServerSetting::new(name, value)),
                None => notes.push(format!("command: \"{word}\" has no value")),
            },
            'N' => settings.push(ServerSetting::new("max_connections", value())),
            'B' => settings.push(ServerSetting::new("shared_buffers", value())),
            'S' => settings.push(ServerSetting::new("work_mem", value())),
            'F' => settings.push(ServerSetting::new("fsync", "off")),
            'l' => settings.push(ServerSetting::new("ssl", "on")),
            'p' => settings.push(ServerSetting::new("port", value())),
            'h' | 'k' | 'D' => {
                value();
            }
            _ => notes.push(format!("command: option \"{word}\"")),
        }
    }
    last_of_each(settings)
}

/// Keeps only the last value of each setting.
fn last_of_each(settings: Vec<ServerSetting>) -> Vec<ServerSetting> {
    let mut kept: Vec<ServerSetting> = Vec::new();
    for setting in settings {
        kept.retain(|other| other.name != setting.name);
        kept.push(setting);
    }
    kept
}
