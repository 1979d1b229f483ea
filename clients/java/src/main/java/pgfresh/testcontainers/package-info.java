/**
 * Classes of Testcontainers that a suite for PostgreSQL uses, with pgfresh underneath. To switch, change the imports. A container is
 * a leased database, so it starts in milliseconds, without Docker.
 */
package pgfresh.testcontainers;
