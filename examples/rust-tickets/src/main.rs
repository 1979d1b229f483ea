//! `tickets migrate` migrates the database that `PGHOST`, `PGDATABASE` and so on name. `tickets report` prints the
//! sales.

use std::env;
use std::error::Error;
use std::path::Path;

use sqlx::PgPool;
use sqlx::migrate::Migrator;
use sqlx::postgres::PgConnectOptions;
use tickets::BoxOffice;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let pool = PgPool::connect_with(PgConnectOptions::new()).await?;
    match env::args().nth(1).as_deref() {
        Some("migrate") => Migrator::new(Path::new("migrations")).await?.run(&pool).await?,
        Some("report") => {
            for line in BoxOffice::new(pool).report().await? {
                println!("{}: {} of {} sold, {} cents", line.title, line.sold, line.seats, line.cents);
            }
        }
        _ => return Err("usage: tickets migrate|report".into()),
    }
    Ok(())
}
