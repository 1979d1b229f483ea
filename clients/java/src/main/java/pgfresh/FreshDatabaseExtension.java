package pgfresh;

import java.net.URI;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ExtensionContext.Namespace;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolutionException;
import org.junit.jupiter.api.extension.ParameterResolver;
import org.opentest4j.TestAbortedException;

/** What {@link FreshDatabase} registers. */
final class FreshDatabaseExtension implements ParameterResolver, AfterEachCallback, AfterAllCallback {

    private static final Namespace NAMESPACE = Namespace.create(FreshDatabaseExtension.class);

    /** Lets what a constructor gets belong to the test that the object is made for. */
    @Override
    public ExtensionContextScope getTestInstantiationExtensionContextScope(ExtensionContext root) {
        return ExtensionContextScope.TEST_METHOD;
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        return parameter.isAnnotated(FreshDatabase.class);
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        FreshDatabase wanted = parameter.findAnnotation(FreshDatabase.class).orElseThrow();
        Class<?> type = parameter.getParameter().getType();
        if (type == Database.class) {
            return database(wanted, context);
        } else if (type == String.class) {
            return database(wanted, context).jdbcUrl();
        } else if (type == URI.class) {
            return URI.create(database(wanted, context).url());
        }
        throw new ParameterResolutionException(
                "@FreshDatabase is a pgfresh.Database, a String or a java.net.URI, and cannot be a " + type.getName());
    }

    /** The one that the class, or one around it, has under that word; or else the test's. */
    private static Database database(FreshDatabase wanted, ExtensionContext context) {
        Optional<ExtensionContext> around = context.getParent();
        while (around.isPresent()) {
            Database database = Owner.of(around.get()).databases.get(wanted.value());
            if (database != null) {
                return database;
            }
            around = around.get().getParent();
        }
        return Owner.of(context).databases.computeIfAbsent(wanted.value(), word -> lease(wanted));
    }

    private static Database lease(FreshDatabase wanted) {
        return Database.fresh(Options.NONE.template(wanted.template()).isolation(wanted.isolation()));
    }

    @Override
    public void afterEach(ExtensionContext test) {
        release(test);
    }

    @Override
    public void afterAll(ExtensionContext tests) {
        release(tests);
    }

    /** Ends the leases of a test or class. If it has failed, so have those around it. */
    private static void release(ExtensionContext context) {
        Owner owner = Owner.of(context);
        if (context.getExecutionException().filter(FreshDatabaseExtension::isFailure).isPresent()) {
            owner.failed = true;
        }
        if (owner.failed) {
            context.getParent().ifPresent(around -> Owner.of(around).failed = true);
        }
        owner.databases.values().forEach(database -> database.release(owner.failed, name(context)));
    }

    /** {@code CLASS.METHOD}, as build tools show it, and behind it the display name if the method has another one. */
    private static String name(ExtensionContext context) {
        String type = context.getTestClass().map(Class::getName).orElse("");
        String display = context.getDisplayName();
        return context.getTestMethod()
                .map(method -> type + "." + method.getName()
                        + (display.startsWith(method.getName() + "(") ? "" : " " + display))
                .orElse(type);
    }

    private static boolean isFailure(Throwable thrown) {
        return !(thrown instanceof TestAbortedException);
    }

    /** A test or a class, with the databases that end with it, by their word. */
    private static final class Owner {
        final Map<String, Database> databases = new ConcurrentHashMap<>();
        volatile boolean failed;

        @SuppressWarnings("deprecation") // JUnit 6 has another name for it, which JUnit 5 has not.
        static Owner of(ExtensionContext context) {
            return context.getStore(NAMESPACE).getOrComputeIfAbsent(context.getUniqueId(), id -> new Owner(), Owner.class);
        }
    }
}
