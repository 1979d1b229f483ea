/**
 * The Testcontainers classes that PostgreSQL suites use, implemented with pgfresh. To switch, change the imports. A
 * container is a leased database, so it starts in milliseconds and doesn't need Docker.
 */
package pgfresh.testcontainers;
