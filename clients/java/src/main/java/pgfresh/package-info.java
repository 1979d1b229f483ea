/**
 * A fresh PostgreSQL database for each test: a copy of the migrated template that {@code pgfresh.toml} describes.
 *
 * <p>{@link pgfresh.FreshDatabase @FreshDatabase} on a parameter is all that most tests need. No driver is chosen here, and
 * nothing is opened.
 */
package pgfresh;
