use std::ops::Deref;

use pgfresh_test::Database;
use sqlx::PgPool;
use tickets::BoxOffice;

/// A box office that a test has to itself, without any event.
pub struct Fresh {
    office: BoxOffice,
    _database: Database,
}

pub async fn open() -> Fresh {
    let database = Database::fresh();
    let pool = PgPool::connect(database.url()).await.unwrap();
    Fresh { office: BoxOffice::new(pool), _database: database }
}

impl Deref for Fresh {
    type Target = BoxOffice;

    fn deref(&self) -> &BoxOffice {
        &self.office
    }
}
