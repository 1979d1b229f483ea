package pgfresh;

import java.lang.reflect.Method;
import java.net.URI;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.AfterTestExecutionCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ExtensionContext.Namespace;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolutionException;
import org.junit.jupiter.api.extension.ParameterResolver;
import org.junit.platform.commons.support.AnnotationSupport;
import org.junit.platform.commons.support.HierarchyTraversalMode;
import org.junit.platform.commons.support.ReflectionSupport;
import org.opentest4j.AssertionFailedError;
import org.opentest4j.TestAbortedException;
import pgfresh.Database.Use;

/** JUnit extension behind {@link FreshDatabase} and {@link Budget}. */
final class FreshDatabaseExtension
        implements ParameterResolver,
                BeforeEachCallback,
                AfterTestExecutionCallback,
                AfterEachCallback,
                AfterAllCallback {

    private static final Namespace NAMESPACE = Namespace.create(FreshDatabaseExtension.class);

    /** Assigns the databases of a constructor to the test that the object is created for. */
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
        FreshDatabase annotation = parameter.findAnnotation(FreshDatabase.class).orElseThrow();
        Class<?> type = parameter.getParameter().getType();
        if (type == Database.class) {
            return database(annotation, context);
        } else if (type == String.class) {
            return database(annotation, context).jdbcUrl();
        } else if (type == URI.class) {
            return URI.create(database(annotation, context).url());
        }
        throw new ParameterResolutionException(
                "@FreshDatabase is a pgfresh.Database, a String or a java.net.URI, and cannot be a " + type.getName());
    }

    /** Returns the database with this key that belongs to the closest enclosing class, or else to the test. */
    private static Database database(FreshDatabase annotation, ExtensionContext context) {
        Optional<ExtensionContext> parent = context.getParent();
        while (parent.isPresent()) {
            Database database = Owner.of(parent.get()).databases.get(annotation.value());
            if (database != null) {
                return database;
            }
            parent = parent.get().getParent();
        }
        return Owner.of(context).databases.computeIfAbsent(annotation.value(), key -> lease(annotation, context));
    }

    private static Database lease(FreshDatabase annotation, ExtensionContext context) {
        Options options = Options.NONE.template(annotation.template()).isolation(annotation.isolation());
        Database database = Database.fresh(options.record(annotation.record() || isRecorded(annotation.value(), context)));
        database.leasedFor(context.getTestMethod().isPresent() ? Owner.of(context).use(context) : Use.CLASS);
        return database;
    }

    /**
     * Returns whether the test, or a test in the class, needs the recorded statements of the database with this key.
     */
    private static boolean isRecorded(String key, ExtensionContext context) {
        if (!limits(context).isEmpty()) {
            return true;
        }
        Optional<Method> test = context.getTestMethod();
        return test.isPresent()
                ? requestsRecord(test.get(), key)
                : hasTestWith(context.getRequiredTestClass(), key);
    }

    private static boolean hasTestWith(Class<?> type, String key) {
        Predicate<Method> needsRecord =
                method -> AnnotationSupport.isAnnotated(method, Budget.class) || requestsRecord(method, key);
        return AnnotationSupport.isAnnotated(type, Budget.class)
                || !ReflectionSupport.findMethods(type, needsRecord, HierarchyTraversalMode.TOP_DOWN).isEmpty()
                || Stream.of(type.getDeclaredClasses()).anyMatch(nested -> hasTestWith(nested, key));
    }

    private static boolean requestsRecord(Method method, String key) {
        return Stream.of(method.getParameters())
                .flatMap(parameter -> AnnotationSupport.findAnnotation(parameter, FreshDatabase.class).stream())
                .anyMatch(annotation -> annotation.record() && annotation.value().equals(key));
    }

    /**
     * Returns the limits of a test, as the HTTP API expects them. Limits of the method take precedence over those of
     * its class, and limits of a class over those of the enclosing class.
     */
    private static Map<String, Object> limits(ExtensionContext test) {
        Map<String, Object> limits = new LinkedHashMap<>();
        for (Optional<ExtensionContext> at = Optional.of(test); at.isPresent(); at = at.get().getParent()) {
            AnnotationSupport.findAnnotation(at.get().getElement(), Budget.class).ifPresent(budget -> {
                if (budget.statements() >= 0) {
                    limits.putIfAbsent("statements", budget.statements());
                }
                if (budget.nPlusOne() >= 0) {
                    limits.putIfAbsent("n_plus_one", budget.nPlusOne());
                }
                if (!budget.time().isEmpty()) {
                    limits.putIfAbsent("time", budget.time());
                }
            });
        }
        return limits;
    }

    /** Returns the databases of the classes that enclose a test. */
    private static Stream<Database> shared(ExtensionContext test) {
        return Stream.iterate(test.getParent(), Optional::isPresent, parent -> parent.get().getParent())
                .flatMap(parent -> Owner.of(parent.get()).databases.values().stream());
    }

    @Override
    public void beforeEach(ExtensionContext test) {
        shared(test).forEach(database -> database.offer(Owner.of(test).use(test)));
    }

    /**
     * Fails a test that exceeded its budget, or whose fault never fired. This happens before {@code @AfterEach}, so
     * that pgfresh can keep the databases of the test.
     */
    @Override
    public void afterTestExecution(ExtensionContext test) {
        Owner owner = Owner.of(test);
        Use use = owner.use(test);
        // After a reset, the database of a class contains only statements of this test.
        List<Database> used = Stream.concat(owner.databases.values().stream(), shared(test))
                .filter(database -> database.isUsedBy(use))
                .toList();
        try {
            if (test.getExecutionException().isEmpty()) {
                check(used, use, Stream.concat(owner.databases.values().stream(), shared(test)));
            }
        } finally {
            Stream.concat(used.stream(), shared(test)).forEach(database -> database.end(use));
        }
    }

    /** Checks the budget of a test in its databases, and the faults of all databases that it can use. */
    private static void check(List<Database> used, Use use, Stream<Database> all) {
        if (!use.limits.isEmpty() && used.isEmpty()) {
            throw new PgfreshException(
                    "the test has a budget and no database of its own",
                    "Give it a parameter with @FreshDatabase, or reset the database of its class in @BeforeEach.");
        }
        Stream<String> exceeded = used.stream()
                .flatMap(database -> database.exceeded().stream())
                .map(limits -> "budget exceeded: " + limits);
        Stream<String> unfired = all.map(Database::unfired).filter(lines -> !lines.isEmpty());
        String message = Stream.concat(exceeded, unfired).collect(Collectors.joining("\n"));
        if (!message.isEmpty()) {
            throw new AssertionFailedError(message);
        }
    }

    @Override
    public void afterEach(ExtensionContext test) {
        release(test);
    }

    @Override
    public void afterAll(ExtensionContext tests) {
        release(tests);
    }

    /**
     * Releases the databases of a test or class. If a test or class failed, so did the enclosing classes. Fails a
     * test if a fault that was requested with SQL never fired.
     */
    private static void release(ExtensionContext context) {
        Owner owner = Owner.of(context);
        if (context.getExecutionException().filter(FreshDatabaseExtension::isFailure).isPresent()) {
            owner.failed = true;
        }
        if (owner.failed) {
            context.getParent().ifPresent(parent -> Owner.of(parent).failed = true);
        }
        // The context of a class doesn't name the failed test, so report the database under the name of the class.
        boolean ofClass = context.getTestMethod().isEmpty();
        List<String> unfired = new ArrayList<>();
        owner.databases.values().forEach(database -> {
            String test = ofClass && !owner.failed ? database.user() : "";
            unfired.add(database.release(owner.failed, test.isEmpty() ? name(context) : test));
        });
        unfired.removeIf(String::isEmpty);
        if (!unfired.isEmpty() && context.getExecutionException().isEmpty()) {
            throw new AssertionFailedError(String.join("\n", unfired));
        }
    }

    /** Returns {@code CLASS.METHOD}, like build tools, followed by the display name if that differs. */
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

    /** Test or class, with the databases that belong to it, by key. */
    private static final class Owner {
        final Map<String, Database> databases = new ConcurrentHashMap<>();

        private Use use;
        volatile boolean failed;

        /** Returns the name and limits of a test. */
        synchronized Use use(ExtensionContext test) {
            if (use == null) {
                use = new Use(name(test), limits(test));
            }
            return use;
        }

        @SuppressWarnings("deprecation") // JUnit 5 doesn't have the method that replaces this one in JUnit 6.
        static Owner of(ExtensionContext context) {
            return context.getStore(NAMESPACE).getOrComputeIfAbsent(context.getUniqueId(), id -> new Owner(), Owner.class);
        }
    }
}
