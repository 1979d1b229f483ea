//! Tests common drivers with databases on a real server.

use std::thread;

use pgfresh_test::{Database, Options};
use sqlx::{Connection as _, Executor as _, PgConnection, PgPool};
use tokio_postgres::NoTls;

async fn fruits(url: &str) -> Vec<String> {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::query_scalar("SELECT name FROM fruit ORDER BY name").fetch_all(&mut connection).await.unwrap()
}

async fn execute(url: &str, statement: &str) {
    PgConnection::connect(url).await.unwrap().execute(statement).await.unwrap();
}

#[tokio::test]
async fn sqlx_pool_connects() {
    let database = Database::fresh();
    let pool = PgPool::connect(database.url()).await.unwrap();
    sqlx::query("INSERT INTO fruit VALUES ($1)").bind("kiwi").execute(&pool).await.unwrap();
    assert_eq!(fruits(database.url()).await, ["kiwi"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokio_postgres_connects() {
    let database = Database::fresh();
    let (client, connection) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client.execute("INSERT INTO fruit VALUES ($1)", &[&"lime"]).await.unwrap();
    assert_eq!(fruits(database.url()).await, ["lime"]);
}

#[test]
fn each_thread_gets_another_database() {
    let one = || {
        let database = Database::fresh();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            execute(database.url(), "INSERT INTO fruit VALUES ('mine')").await;
            assert_eq!(fruits(database.url()).await, ["mine"]);
        });
    };
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(one);
        }
    });
}

#[tokio::test]
async fn options_select_name_and_template() {
    let database = Options::default().name("Größe +/%").template("template1").lease().unwrap();
    assert_eq!((database.name(), database.template()), ("Größe +/%", "template1"));
    let mut connection = PgConnection::connect(database.url()).await.unwrap();
    let found: (String, bool) =
        sqlx::query_as("SELECT current_database()::text, to_regclass('fruit') IS NULL")
            .fetch_one(&mut connection)
            .await
            .unwrap();
    assert_eq!(found, ("Größe +/%".to_owned(), true));
}

#[tokio::test]
async fn reset_restores_template() {
    let database = Database::fresh();
    let mut open = PgConnection::connect(database.url()).await.unwrap();
    open.execute("INSERT INTO fruit VALUES ('fig')").await.unwrap();
    assert_eq!(database.reset().unwrap_err().code.as_deref(), Some("55006"));
    database.reset_closing_sessions().unwrap();
    assert!(open.execute("SELECT 1").await.is_err());
    assert!(fruits(database.url()).await.is_empty());
}

#[tokio::test]
async fn drop_releases_database() {
    let lease = || Options::default().name("short_lived").lease().unwrap();
    let database = lease();
    // An open connection doesn't prevent the release.
    let _pool = PgPool::connect(database.url()).await.unwrap();
    execute(database.url(), "INSERT INTO fruit VALUES ('old')").await;
    drop(database);
    assert!(fruits(lease().url()).await.is_empty());
}

#[test]
fn refused_lease_has_error_of_server() {
    let error = Options::default().template("shpo").lease().unwrap_err();
    assert_eq!(error.code.as_deref(), Some("3D000"));
    assert_eq!(error.message, r#"template "shpo" does not exist"#);
}
