package pgfresh;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Inherited;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * Limits what a test, or each test in a class, does in its {@link FreshDatabase}. If a test exceeds a limit, it fails
 * with a list of the statements that it ran.
 *
 * <pre>{@code
 * @Test
 * @Budget(statements = 5, nPlusOne = 0, time = "50ms")
 * void listsTheOrders(@FreshDatabase String url) throws SQLException {
 *     ...
 * }</pre>
 *
 * <p>A limit of the method replaces the limit of its class, which replaces the limit in {@code [budget]} of {@code
 * pgfresh.toml}. Counting starts with the lease of the database or its last reset, and ends with the test method. It
 * includes {@code @BeforeEach}, but not {@code @AfterEach}. Statements in the database of a class count if the test
 * resets this database.
 */
@Target({ElementType.METHOD, ElementType.TYPE})
@Retention(RetentionPolicy.RUNTIME)
@Documented
@Inherited
@ExtendWith(FreshDatabaseExtension.class)
public @interface Budget {

    /** Maximum number of statements, including BEGIN and COMMIT. A negative number means no limit. */
    int statements() default -1;

    /** How often the same query may run with different values. 0 forbids an N+1. A negative number means no limit. */
    int nPlusOne() default -1;

    /** Maximum time in the database, such as {@code "200ms"} or {@code "2s"}. An empty text means no limit. */
    String time() default "";
}
