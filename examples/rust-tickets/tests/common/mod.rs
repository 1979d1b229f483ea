use std::ops::Deref;

use pgfresh_test::{Database, Options};
use sqlx::PgPool;
use tickets::BoxOffice;

/// A box office that a test has to itself, without any event.
pub struct Fresh {
    office: BoxOffice,
    // Not every file of tests needs it.
    #[allow(dead_code)]
    pub database: Database,
}

pub async fn open() -> Fresh {
    open_with(&Options::default()).await
}

/// The same, in a database that is leased with these options.
pub async fn open_with(options: &Options) -> Fresh {
    let database = options.lease().unwrap();
    let pool = PgPool::connect(database.url()).await.unwrap();
    Fresh { office: BoxOffice::new(pool), database }
}

impl Deref for Fresh {
    type Target = BoxOffice;

    fn deref(&self) -> &BoxOffice {
        &self.office
    }
}
