package pgfresh;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Inherited;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * What a test may do in its {@link FreshDatabase}, or each test of a class. A test beyond it fails with its statements.
 *
 * <pre>{@code
 * @Test
 * @Budget(statements = 5, nPlusOne = 0, time = "50ms")
 * void listsTheOrders(@FreshDatabase String url) throws SQLException {
 *     ...
 * }</pre>
 *
 * <p>A limit of the method replaces that of its class, and that one the limit of {@code [budget]} in {@code pgfresh.toml}.
 * What counts is everything from the lease of the database, or its last reset, until the test method ends. That includes
 * {@code @BeforeEach}, and not {@code @AfterEach}. The database of a class counts for a test that resets it.
 */
@Target({ElementType.METHOD, ElementType.TYPE})
@Retention(RetentionPolicy.RUNTIME)
@Documented
@Inherited
@ExtendWith(FreshDatabaseExtension.class)
public @interface Budget {

    /** At most so many statements. A negative number is no limit. */
    int statements() default -1;

    /** At most so many runs of one query with different values; 0 forbids any N+1. A negative number is no limit. */
    int nPlusOne() default -1;

    /** At most so much time in the database, as {@code "200ms"} or {@code "2s"}. Without it, there is no limit. */
    String time() default "";
}
