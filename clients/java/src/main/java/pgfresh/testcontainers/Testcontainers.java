package pgfresh.testcontainers;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Inherited;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.extension.ExtendWith;

/** Makes JUnit start and stop the fields of a class that are marked with {@link Container}. */
@Documented
@Inherited
@Target(ElementType.TYPE)
@Retention(RetentionPolicy.RUNTIME)
@ExtendWith(TestcontainersExtension.class)
public @interface Testcontainers {

    /** Has no effect, because pgfresh doesn't need Docker. */
    boolean disabledWithoutDocker() default false;

    /** Has no effect, because a start takes only milliseconds. */
    boolean parallel() default false;
}
