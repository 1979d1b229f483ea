package pgfresh.testcontainers;

import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.List;
import java.util.function.Predicate;
import java.util.stream.Stream;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionConfigurationException;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.platform.commons.support.AnnotationSupport;
import org.junit.platform.commons.support.HierarchyTraversalMode;
import org.junit.platform.commons.support.ReflectionSupport;

/** JUnit extension behind {@link Testcontainers}. */
final class TestcontainersExtension
        implements BeforeAllCallback, BeforeEachCallback, AfterEachCallback, AfterAllCallback {

    @Override
    public void beforeAll(ExtensionContext context) {
        ofClass(context).forEach(PostgreSQLContainer::start);
    }

    @Override
    public void beforeEach(ExtensionContext context) {
        ofTest(context).forEach(PostgreSQLContainer::start);
    }

    @Override
    public void afterEach(ExtensionContext context) {
        ofTest(context).forEach(PostgreSQLContainer::stop);
    }

    @Override
    public void afterAll(ExtensionContext context) {
        ofClass(context).forEach(PostgreSQLContainer::stop);
    }

    private static Stream<PostgreSQLContainer<?>> ofClass(ExtensionContext context) {
        Class<?> type = context.getRequiredTestClass();
        return fields(type, field -> Modifier.isStatic(field.getModifiers())).map(field -> read(field, null));
    }

    /** Returns the containers in the test instance and in its enclosing instances. */
    private static Stream<PostgreSQLContainer<?>> ofTest(ExtensionContext context) {
        List<Object> objects = context.getRequiredTestInstances().getAllInstances();
        return objects.stream()
                .flatMap(object -> fields(object.getClass(), field -> !Modifier.isStatic(field.getModifiers()))
                        .map(field -> read(field, object)));
    }

    private static Stream<Field> fields(Class<?> type, Predicate<Field> which) {
        return AnnotationSupport.findAnnotatedFields(type, Container.class, which, HierarchyTraversalMode.TOP_DOWN)
                .stream();
    }

    private static PostgreSQLContainer<?> read(Field field, Object object) {
        Object value = ReflectionSupport.tryToReadFieldValue(field, object)
                .getOrThrow(error -> new ExtensionConfigurationException("cannot read field " + field.getName(), error));
        if (value instanceof PostgreSQLContainer<?> container) {
            return container;
        }
        throw new ExtensionConfigurationException(
                "field " + field.getName() + " has no pgfresh.testcontainers.PostgreSQLContainer");
    }
}
