package pgfresh;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * Marks a parameter to which JUnit passes a fresh database: as a {@link Database}, as its JDBC URL (a {@link String}), or as
 * its PostgreSQL URL (a {@link java.net.URI}).
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
 *   <li>to the test, for a parameter of the test method, of {@code @BeforeEach}, {@code @AfterEach}, or of the constructor.
 *       All of them get the same database. Each test and each invocation of a parameterized test gets another one.
 *   <li>to the class, for a parameter of {@code @BeforeAll}, or of the constructor with {@code PER_CLASS}. The tests of the class
 *       and of its nested classes get that database.
 * </ul>
 *
 * <p>The database ends with its owner. The client reports a failed owner to pgfresh. If pgfresh keeps the database, standard
 * error has its URL. Tests may run in parallel.
 */
@Target(ElementType.PARAMETER)
@Retention(RetentionPolicy.RUNTIME)
@Documented
@ExtendWith(FreshDatabaseExtension.class)
public @interface FreshDatabase {

    /** Key of the database, for an owner with several ones. Parameters with equal keys get the same database. */
    String value() default "";

    /** Template of the database. Default: the one in {@code pgfresh.toml}. */
    String template() default "";

    /** Isolation of the database, as in the documentation of the HTTP API. */
    String isolation() default "";

    /**
     * Whether pgfresh records the statements, for {@link Database#statements}. A {@link Budget} includes that. The parameter
     * of the test can set it for a database that {@code @BeforeEach} gets first.
     */
    boolean record() default false;
}
