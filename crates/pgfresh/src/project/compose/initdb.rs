//! Parses the value of `POSTGRES_INITDB_ARGS`.

use super::command::ServerSetting;

/// initdb arguments that affect databases.
#[derive(Debug, Default)]
pub(crate) struct InitdbArguments {
    /// Options for `CREATE DATABASE`. Empty if the arguments request pgfresh's own defaults.
    pub(crate) database_options: String,
    pub(super) settings: Vec<ServerSetting>,
}

/// Locales that every C library has.
const EVERYWHERE: [&str; 3] = ["C", "POSIX", "C.UTF-8"];

/// Parses the arguments. Adds a note for each argument that pgfresh doesn't take over.
pub(super) fn parse(arguments: &str, notes: &mut Vec<String>) -> InitdbArguments {
    let words = shlex::split(arguments).unwrap_or_default();
    let mut words = words.iter().map(String::as_str);
    let mut found = InitdbArguments::default();
    let (mut encoding, mut locale, mut icu_locale) = (None, None, None);
    while let Some(word) = words.next() {
        let (name, attached) = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value)),
            _ => (word, None),
        };
        let mut value = || attached.or_else(|| words.next()).unwrap_or_default();
        match name {
            "--encoding" | "-E" => encoding = Some(value().to_ascii_uppercase()),
            "--locale" | "--lc-collate" => locale = Some(value().to_owned()),
            "--icu-locale" => icu_locale = Some(value().to_owned()),
            "--no-locale" => locale = Some("C".to_owned()),
            "--text-search-config" | "-T" => {
                found.settings.push(ServerSetting::new(
                    "default_text_search_config",
                    &format!("pg_catalog.{}", value()),
                ));
            }
            "-c" | "--set" => {
                let setting = value().split_once('=');
                found.settings.extend(setting.map(|(name, value)| ServerSetting::new(name, value)));
            }
            // These arguments don't affect tests.
            "--no-sync" | "-N" | "--data-checksums" | "-k" | "--no-data-checksums" | "--nosync" => {}
            "--auth" | "-A" | "--auth-host" | "--auth-local" | "--username" | "-U" | "--locale-provider"
            | "--lc-ctype" => {
                value();
            }
            _ => notes.push(format!("POSTGRES_INITDB_ARGS: {word}")),
        }
    }
    found.database_options = database_options(encoding, locale.as_deref(), icu_locale, notes);
    found
}

fn database_options(
    encoding: Option<String>,
    locale: Option<&str>,
    icu_locale: Option<String>,
    notes: &mut Vec<String>,
) -> String {
    let encoding = encoding.filter(|encoding| !matches!(encoding.as_str(), "UTF8" | "UTF-8" | "UNICODE"));
    let is_plain =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte));
    if let Some(icu) = icu_locale.filter(|icu| is_plain(icu)) {
        return format!("LOCALE_PROVIDER icu ICU_LOCALE '{icu}' LOCALE 'C.UTF-8'");
    }
    let taken = locale.filter(|locale| EVERYWHERE.contains(locale));
    if let (Some(locale), None) = (locale, taken) {
        notes.push(format!(
            "POSTGRES_INITDB_ARGS: locale {locale}, which must be installed on each machine (docs/recipes.md)"
        ));
    }
    match (encoding, taken) {
        (Some(encoding), _) if is_plain(&encoding) => {
            format!("ENCODING '{encoding}' LOCALE '{}'", taken.unwrap_or("C"))
        }
        (_, Some(locale)) if locale != "C.UTF-8" => format!("LOCALE '{locale}'"),
        _ => String::new(),
    }
}
