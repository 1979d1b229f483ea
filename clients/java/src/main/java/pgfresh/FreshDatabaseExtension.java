package pgfresh;

import java.lang.reflect.Method;
import java.net.URI;
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

/** What {@link FreshDatabase} and {@link Budget} register. */
final class FreshDatabaseExtension
        implements ParameterResolver,
                BeforeEachCallback,
                AfterTestExecutionCallback,
                AfterEachCallback,
                AfterAllCallback {

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
        return Owner.of(context).databases.computeIfAbsent(wanted.value(), word -> lease(wanted, context));
    }

    private static Database lease(FreshDatabase wanted, ExtensionContext context) {
        Options options = Options.NONE.template(wanted.template()).isolation(wanted.isolation());
        Database database = Database.fresh(options.record(wanted.record() || isRecorded(wanted.value(), context)));
        database.leasedFor(context.getTestMethod().isPresent() ? Owner.of(context).use(context) : Use.CLASS);
        return database;
    }

    /** Whether the test needs the statements of the database with that word; for that of a class, whether a test does. */
    private static boolean isRecorded(String word, ExtensionContext context) {
        if (!limits(context).isEmpty()) {
            return true;
        }
        Optional<Method> test = context.getTestMethod();
        return test.isPresent()
                ? asksForRecord(test.get(), word)
                : hasTestWith(context.getRequiredTestClass(), word);
    }

    private static boolean hasTestWith(Class<?> type, String word) {
        Predicate<Method> needsRecord =
                method -> AnnotationSupport.isAnnotated(method, Budget.class) || asksForRecord(method, word);
        return AnnotationSupport.isAnnotated(type, Budget.class)
                || !ReflectionSupport.findMethods(type, needsRecord, HierarchyTraversalMode.TOP_DOWN).isEmpty()
                || Stream.of(type.getDeclaredClasses()).anyMatch(nested -> hasTestWith(nested, word));
    }

    private static boolean asksForRecord(Method method, String word) {
        return Stream.of(method.getParameters())
                .flatMap(parameter -> AnnotationSupport.findAnnotation(parameter, FreshDatabase.class).stream())
                .anyMatch(wanted -> wanted.record() && wanted.value().equals(word));
    }

    /** The budget of a test as pgfresh reads it: of each limit the nearest, that of its method or of a class around it. */
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

    /** The databases of the classes around a test. */
    private static Stream<Database> shared(ExtensionContext test) {
        return Stream.iterate(test.getParent(), Optional::isPresent, around -> around.get().getParent())
                .flatMap(around -> Owner.of(around.get()).databases.values().stream());
    }

    @Override
    public void beforeEach(ExtensionContext test) {
        shared(test).forEach(database -> database.offer(Owner.of(test).use(test)));
    }

    /** Fails a test beyond its budget, before its {@code @AfterEach}, so that its databases are those of a failed test. */
    @Override
    public void afterTestExecution(ExtensionContext test) {
        Owner owner = Owner.of(test);
        Use use = owner.use(test);
        // One of a class that was reset has nothing of other tests.
        List<Database> used = Stream.concat(owner.databases.values().stream(), shared(test))
                .filter(database -> database.isUsedBy(use))
                .toList();
        try {
            if (test.getExecutionException().isEmpty()) {
                check(used, use);
            }
        } finally {
            Stream.concat(used.stream(), shared(test)).forEach(database -> database.end(use));
        }
    }

    private static void check(List<Database> used, Use use) {
        if (!use.limits.isEmpty() && used.isEmpty()) {
            throw new PgfreshException(
                    "the test has a budget and no database of its own",
                    "Give it a parameter with @FreshDatabase, or reset the database of its class in @BeforeEach.");
        }
        String message = used.stream()
                .flatMap(database -> database.exceeded().stream())
                .map(exceeded -> "budget exceeded: " + exceeded)
                .collect(Collectors.joining("\n"));
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

    /** Ends the leases of a test or class. If it has failed, so have those around it. */
    private static void release(ExtensionContext context) {
        Owner owner = Owner.of(context);
        if (context.getExecutionException().filter(FreshDatabaseExtension::isFailure).isPresent()) {
            owner.failed = true;
        }
        if (owner.failed) {
            context.getParent().ifPresent(around -> Owner.of(around).failed = true);
        }
        // Which test of a class has failed is not known here, so its database has the name of the class.
        boolean ofClass = context.getTestMethod().isEmpty();
        owner.databases.values().forEach(database -> {
            String test = ofClass && !owner.failed ? database.user() : "";
            database.release(owner.failed, test.isEmpty() ? name(context) : test);
        });
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

        private Use use;
        volatile boolean failed;

        /** Of a test: as what it uses databases. */
        synchronized Use use(ExtensionContext test) {
            if (use == null) {
                use = new Use(name(test), limits(test));
            }
            return use;
        }

        @SuppressWarnings("deprecation") // JUnit 6 has another name for it, which JUnit 5 has not.
        static Owner of(ExtensionContext context) {
            return context.getStore(NAMESPACE).getOrComputeIfAbsent(context.getUniqueId(), id -> new Owner(), Owner.class);
        }
    }
}
