//! Defines integresql's API, whose format its existing clients require. Source: `internal/api/templates/templates.go`
//! of integresql 1.1.0.

use serde::{Deserialize, Serialize};

/// Request to create a template. pgfresh ignores further members that clients send, as integresql does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(extend("required" = ["hash"])))]
pub struct InitializeRequest {
    /// Hash of the template's inputs, which must not be empty.
    #[serde(default)]
    #[cfg_attr(test, schemars(regex(pattern = crate::openapi::NAME)))]
    pub hash: String,
}

/// A database for an integresql client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IntegresqlResponse {
    /// Number of the test database. Missing for a template's own database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<usize>,
    /// The database.
    pub database: IntegresqlDatabase,
}

/// A database made from a template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct IntegresqlDatabase {
    /// Hash of the template.
    pub template_hash: String,
    /// How to connect.
    pub config: IntegresqlConfig,
}

/// Connection parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IntegresqlConfig {
    /// Address of the gateway.
    pub host: String,
    /// Port of the gateway.
    pub port: u16,
    /// User name.
    pub username: String,
    /// Password.
    pub password: String,
    /// Name of the database.
    pub database: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_may_say_more_than_a_hash() {
        let request: InitializeRequest = serde_json::from_str(r#"{"hash":"3f9a","name":"x"}"#).unwrap();
        assert_eq!(request.hash, "3f9a");
    }

    #[test]
    fn answers_have_the_shape_that_clients_read() {
        let config = IntegresqlConfig {
            host: "127.0.0.1".into(),
            port: 5433,
            username: "postgres".into(),
            password: "s".into(),
            database: "d".into(),
        };
        let database = IntegresqlDatabase { template_hash: "3f9a".into(), config };
        let config =
            r#"{"host":"127.0.0.1","port":5433,"username":"postgres","password":"s","database":"d"}"#;
        let mut answer = IntegresqlResponse { id: None, database };
        let text = format!(r#"{{"database":{{"templateHash":"3f9a","config":{config}}}}}"#);
        assert_eq!(serde_json::to_string(&answer).unwrap(), text);
        answer.id = Some(0);
        assert_eq!(serde_json::to_string(&answer).unwrap(), text.replacen('{', r#"{"id":0,"#, 1));
    }
}
