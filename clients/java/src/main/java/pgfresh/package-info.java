/**
 * Fresh PostgreSQL databases for tests: copies of the migrated template that {@code pgfresh.toml} describes.
 *
 * <p>Most tests need only {@link pgfresh.FreshDatabase @FreshDatabase} on a parameter. The package has no driver, and
 * doesn't connect to databases.
 */
package pgfresh;
