package pgfresh;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * Lets JUnit pass a fresh database to the parameter: as a {@link Database}, as its JDBC URL (a {@link String}), or as its
 * PostgreSQL URL (a {@link java.net.URI}).
 *
 * <pre>{@code
 * @Test
 * void findsTheOrder(@FreshDatabase String url) throws SQLException {
 *     try (Connection connection = DriverManager.getConnection(url)) {
 *         ...
 * }</pre>
 *
 * <p>It belongs to whom the parameter does:
 *
 * <ul>
 *   <li>to the test, for a parameter of the test method, of {@code @BeforeEach}, {@code @AfterEach}, or of the constructor.
 *       They all get the same database, and each test, each invocation of a parameterized one too, another.
 *   <li>to the class, for a parameter of {@code @BeforeAll}, or of the constructor if there is one object for all tests
 *       ({@code PER_CLASS}). The tests of the class, and of its nested classes, then get that one.
 * </ul>
 *
 * <p>It ends with its owner. If that has failed, pgfresh is told so; where it keeps the databases of failed tests, standard
 * error says how to get there. Tests may run in parallel.
 */
@Target(ElementType.PARAMETER)
@Retention(RetentionPolicy.RUNTIME)
@Documented
@ExtendWith(FreshDatabaseExtension.class)
public @interface FreshDatabase {

    /** Which of its owner's databases, where one is not enough: parameters with the same word get the same. */
    String value() default "";

    /** The template to copy. Without it, the server's default one. */
    String template() default "";

    /** The kind of isolation, in the words of pgfresh's HTTP API. Without it, the default one. */
    String isolation() default "";

    /**
     * Whether to record the statements of its clients, for {@link Database#statements}. A {@link Budget} does so, too. For a
     * database that {@code @BeforeEach} gets first, the parameter of the test can ask for it.
     */
    boolean record() default false;
}
