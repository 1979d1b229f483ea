package pgfresh;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * Marks a parameter that receives a fresh database from JUnit. The type selects the form: {@link Database}, {@link
 * String} for the JDBC URL, or {@link java.net.URI} for the PostgreSQL URL.
 *
 * <pre>{@code
 * @Test
 * void findsTheOrder(@FreshDatabase String url) throws SQLException {
 *     try (Connection connection = DriverManager.getConnection(url)) {
 *         ...
 * }</pre>
 *
 * <p>The database belongs to the owner of the parameter:
 *
 * <ul>
 *   <li>to the test, for a parameter of the test method, of {@code @BeforeEach}, {@code @AfterEach}, or of the
 *       constructor. All these parameters get the same database. Each test, and each invocation of a parameterized
 *       test, gets a new database.
 *   <li>to the class, for a parameter of {@code @BeforeAll}, or of the constructor with {@code PER_CLASS}. The tests
 *       of the class and of its nested classes get this database.
 * </ul>
 *
 * <p>pgfresh removes the database when its owner ends. The client reports to pgfresh if the owner failed. If pgfresh
 * keeps the database, the client prints the URL to standard error. Tests may run in parallel.
 */
@Target(ElementType.PARAMETER)
@Retention(RetentionPolicy.RUNTIME)
@Documented
@ExtendWith(FreshDatabaseExtension.class)
public @interface FreshDatabase {

    /** Key of the database, for an owner with several databases. Parameters with the same key get the same database. */
    String value() default "";

    /** Template of the database. Default: the one in {@code pgfresh.toml}. */
    String template() default "";

    /** Isolation of the database. The HTTP API documentation lists the values. */
    String isolation() default "";

    /**
     * Whether pgfresh records the statements, for {@link Database#statements}. A {@link Budget} implies this. A
     * parameter of the test method also enables recording in {@code @BeforeEach}, which gets the same database
     * earlier.
     */
    boolean record() default false;
}
