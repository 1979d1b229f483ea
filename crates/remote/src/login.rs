//! Logs in to a registry with the credentials that `docker login` stored.
//!
//! A registry accepts either basic authentication (the client sends the credentials
//! themselves) or a bearer token (the client gets the token in exchange for the credentials).
//!
//! Source: distribution.github.io/distribution/spec/auth/token.

use std::env;
use std::fs;
use std::path::PathBuf;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use reqwest::{Client, Url};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::address::is_loopback;
use crate::error::StoreError;
use crate::stored::{body, collect};

/// Maximum size of a token server's response, in bytes.
const LONGEST_ANSWER: u64 = 1 << 20;

/// The credentials for one repository. `Debug` never prints them.
pub(crate) struct Login {
    client: Client,
    repository: String,
    /// User and password in base64, as used by both the HTTP header and docker's configuration file.
    basic: Option<String>,
    /// The most recent authorization header.
    current: Mutex<Option<String>>,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login")
    }
}

impl Login {
    pub(crate) fn new(client: Client, host: &str, repository: &str) -> Self {
        let basic = files().into_iter().find_map(|path| stored(&fs::read_to_string(path).ok()?, host));
        Self { client, repository: repository.to_owned(), basic, current: Mutex::new(None) }
    }

    /// Returns the authorization header for a request. If the registry rejected the previous attempt with `challenge`,
    /// obtains a new header first.
    pub(crate) async fn authorization(&self, challenge: Option<&str>) -> Result<Option<String>, StoreError> {
        let mut current = self.current.lock().await;
        if let Some(challenge) = challenge {
            *current = Some(self.answer(challenge).await?);
        }
        Ok(current.clone())
    }

    async fn answer(&self, challenge: &str) -> Result<String, StoreError> {
        let refused = |why: &str| StoreError::Refused(why.to_owned());
        let (scheme, parameters) = challenge.split_once(' ').unwrap_or((challenge, ""));
        if scheme.eq_ignore_ascii_case("basic") {
            let basic = self.basic.as_ref().ok_or_else(|| {
                refused("the registry requires a login, but \"docker login\" has stored none")
            })?;
            return Ok(format!("Basic {basic}"));
        }
        let realm = parameter(parameters, "realm").and_then(|realm| Url::parse(&realm).ok());
        let mut realm = realm.ok_or_else(|| refused("the registry requires an unsupported kind of login"))?;
        if realm.scheme() != "https" && !is_loopback(&realm) {
            return Err(refused("the registry asks for a login without TLS"));
        }
        if let Some(service) = parameter(parameters, "service") {
            realm.query_pairs_mut().append_pair("service", &service);
        }
        let ours = format!("repository:{}:pull,push", self.repository);
        let scope = parameter(parameters, "scope").unwrap_or(ours);
        realm.query_pairs_mut().append_pair("scope", &scope);
        let mut request = self.client.get(realm);
        if let Some(basic) = &self.basic {
            request = request.header("authorization", format!("Basic {basic}"));
        }
        let answer = request.send().await.map_err(|error| StoreError::broken(&error))?;
        if !answer.status().is_success() {
            return Err(refused(&format!(
                "the registry rejected the login: http status {}",
                answer.status().as_u16()
            )));
        }
        let answer: Value = serde_json::from_slice(&collect(body(answer), LONGEST_ANSWER).await?)
            .map_err(|error| StoreError::broken(&error))?;
        let token = answer["token"].as_str().or(answer["access_token"].as_str());
        token.map(|token| format!("Bearer {token}")).ok_or_else(|| refused("the registry gave no token"))
    }
}

/// Returns the paths of docker's and podman's credential files.
fn files() -> Vec<PathBuf> {
    let folder = |name: &str| env::var_os(name).map(PathBuf::from);
    let home = folder("HOME").map(|home| home.join(".docker"));
    let mut files: Vec<_> = folder("REGISTRY_AUTH_FILE").into_iter().collect();
    files.extend(folder("DOCKER_CONFIG").or(home).map(|folder| folder.join("config.json")));
    files.extend(folder("XDG_RUNTIME_DIR").map(|folder| folder.join("containers/auth.json")));
    files
}

/// Returns the credentials for `host` from the contents of one of [`files`].
fn stored(text: &str, host: &str) -> Option<String> {
    let file: Value = serde_json::from_str(text).ok()?;
    let auths = file["auths"].as_object()?;
    let entry = auths.iter().find(|(name, _)| {
        let name = name.trim_start_matches("https://").trim_start_matches("http://");
        name.split('/').next() == Some(host)
    })?;
    let auth = entry.1["auth"].as_str()?;
    BASE64_STANDARD.decode(auth).ok().filter(|plain| plain.contains(&b':'))?;
    Some(auth.to_owned())
}

/// Returns the value of a challenge's parameter `name`. Parameters look like `name="value"`.
fn parameter(text: &str, name: &str) -> Option<String> {
    let mut rest = text;
    while let Some((key, more)) = rest.split_once('=') {
        let (value, after) = match more.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => more.split_once(',').unwrap_or((more, "")),
        };
        if key.trim_matches([',', ' ']).eq_ignore_ascii_case(name) {
            return Some(value.to_owned());
        }
        rest = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_read_by_name() {
        let text = r#"realm="https://auth.example/token",service="registry.example",scope="repository:a/b:pull,push""#;
        assert_eq!(parameter(text, "realm").as_deref(), Some("https://auth.example/token"));
        assert_eq!(parameter(text, "scope").as_deref(), Some("repository:a/b:pull,push"));
        assert_eq!(parameter(text, "error"), None);
        for cut in 0..text.len() {
            assert!(parameter(&text[..cut], "none").is_none());
        }
    }

    #[test]
    fn a_login_is_that_of_its_registry() {
        let auth = BASE64_STANDARD.encode("user:password");
        let file = format!(
            r#"{{"auths": {{"https://registry.example/v1/": {{"auth": "{auth}"}}, "other.example": {{}}}}}}"#
        );
        assert_eq!(stored(&file, "registry.example"), Some(auth));
        for host in ["other.example", "example", "registry.example.com", ""] {
            assert_eq!(stored(&file, host), None, "{host}");
        }
        assert_eq!(stored("no json", "registry.example"), None);
    }
}
