package pgfresh;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Inherited;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * Limits for a test in its {@link FreshDatabase}, or for each test of a class. A test that exceeds a limit fails with the list
 * of its statements.
 *
 * <pre>{@code
 * @Test
 * @Budget(statements = 5, nPlusOne = 0, time = "50ms")
 * void listsTheOrders(@FreshDatabase String url) throws SQLException {
 *     ...
 * }</pre>
 *
 * <p>A limit of the method replaces that of its class, which replaces that of {@code [budget]} in {@code pgfresh.toml}. The count
 * begins with the lease of the database or its last reset, and ends with the test method. It includes {@code @BeforeEach}, but
 * not {@code @AfterEach}. The database of a class counts for a test that resets it.
 */
@Target({ElementType.METHOD, ElementType.TYPE})
@Retention(RetentionPolicy.RUNTIME)
@Documented
@Inherited
@ExtendWith(FreshDatabaseExtension.class)
public @interface Budget {

    /** Maximum number of statements, with BEGIN and COMMIT. A negative number is no limit. */
    int statements() default -1;

    /** Maximum number of runs of one query with different values. 0 forbids an N+1. A negative number is no limit. */
    int nPlusOne() default -1;

    /** Maximum time in the database, as {@code "200ms"} or {@code "2s"}. An empty text is no limit. */
    String time() default "";
}
