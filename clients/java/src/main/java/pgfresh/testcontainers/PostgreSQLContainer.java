package pgfresh.testcontainers;

import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.Driver;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Properties;
import pgfresh.Database;
import pgfresh.Options;
import pgfresh.PgfreshException;

/**
 * pgfresh database with the methods of Testcontainers' class. {@link #start} leases a copy of the template in {@code
 * pgfresh.toml}. Without this file, the database is empty. The lease ends with {@link #stop} or with the process.
 *
 * <pre>{@code
 * @Testcontainers
 * class OrdersTest {
 *     @Container
 *     static PostgreSQLContainer<?> postgres = new PostgreSQLContainer<>("postgres:17");
 * }
 * }</pre>
 */
public class PostgreSQLContainer<SELF extends PostgreSQLContainer<SELF>> extends DockerCalls<SELF>
        implements AutoCloseable {

    public static final String NAME = "postgresql";
    public static final String IMAGE = "postgres";
    public static final String DEFAULT_TAG = "9.6.12";
    public static final Integer POSTGRESQL_PORT = 5432;

    /** SQLSTATE for a lease whose name is already in use. */
    private static final String DUPLICATE_DATABASE = "42P04";

    private final String image;
    private final List<String> initScripts = new ArrayList<>();
    private final StringBuilder urlParameters = new StringBuilder();
    private String databaseName = "";
    private String username = "";
    private String password = "";

    /** Null if the container isn't running. */
    private Database database;

    public PostgreSQLContainer() {
        this(IMAGE + ":" + DEFAULT_TAG);
    }

    /** Creates a container. The image version has no effect: {@code pgfresh.toml} sets the version of PostgreSQL. */
    public PostgreSQLContainer(String image) {
        this.image = image;
    }

    public PostgreSQLContainer(DockerImageName image) {
        this(image.asCanonicalNameString());
    }

    /**
     * Sets the name. If another lease has this name, pgfresh generates a name, which {@link #getDatabaseName}
     * returns.
     */
    public SELF withDatabaseName(String databaseName) {
        this.databaseName = databaseName;
        return self();
    }

    /**
     * Makes the user a superuser. The container then runs its own server, because databases on a server share their
     * users.
     */
    public SELF withUsername(String username) {
        this.username = username;
        return self();
    }

    /**
     * Sets the password that {@link #getPassword} returns until the container runs. Then it returns the server's
     * password.
     */
    public SELF withPassword(String password) {
        this.password = password;
        return self();
    }

    public SELF withUrlParam(String name, String value) {
        urlParameters.append('&').append(encode(name)).append('=').append(encode(value));
        return self();
    }

    /** Sets a script on the class path, which {@link #start} runs. */
    public SELF withInitScript(String path) {
        return withInitScripts(path);
    }

    public SELF withInitScripts(String... paths) {
        return withInitScripts(List.of(paths));
    }

    public SELF withInitScripts(Iterable<String> paths) {
        initScripts.clear();
        paths.forEach(initScripts::add);
        return self();
    }

    /** Accepts only PostgreSQL's port. */
    public SELF withExposedPorts(Integer... ports) {
        for (Integer port : ports) {
            checkPort(port);
        }
        return self();
    }

    /**
     * Leases the database. Does nothing if the container is already running.
     *
     * @throws PgfreshException if pgfresh doesn't start or refuses the request
     * @throws IllegalStateException if a script fails
     */
    public void start() {
        if (database != null) {
            return;
        }
        Options options = Options.NONE.isolation(hasOwnUser() ? "server" : "").name(databaseName);
        try {
            database = Database.fresh(options);
        } catch (PgfreshException refused) {
            if (databaseName.isEmpty() || !refused.code().equals(Optional.of(DUPLICATE_DATABASE))) {
                throw refused;
            }
            database = Database.fresh(options.name(""));
        }
        try {
            prepare();
        } catch (SQLException | IOException | RuntimeException error) {
            stop();
            throw new IllegalStateException("could not prepare the container: " + error.getMessage(), error);
        }
    }

    private void prepare() throws SQLException, IOException {
        if (!hasOwnUser() && initScripts.isEmpty()) {
            return;
        }
        try (Connection connection = DriverManager.getConnection(database.jdbcUrl());
                Statement statement = connection.createStatement()) {
            if (hasOwnUser()) {
                statement.execute("CREATE ROLE \"" + username.replace("\"", "\"\"") + "\" SUPERUSER LOGIN");
            }
        }
        try (Connection connection = createConnection("");
                Statement statement = connection.createStatement()) {
            for (String path : initScripts) {
                statement.execute(read(path));
            }
        }
    }

    private static String read(String path) throws IOException {
        ClassLoader loader = Thread.currentThread().getContextClassLoader();
        try (InputStream script = loader.getResourceAsStream(path)) {
            if (script == null) {
                throw new IOException("there is no script \"" + path + "\" in the class path");
            }
            return new String(script.readAllBytes(), StandardCharsets.UTF_8);
        }
    }

    private boolean hasOwnUser() {
        return !username.isEmpty() && !username.equals("postgres");
    }

    /** Releases the database. Does nothing if the container isn't running. */
    public void stop() {
        if (database != null) {
            database.close();
            database = null;
        }
    }

    @Override
    public void close() {
        stop();
    }

    public boolean isRunning() {
        return database != null;
    }

    public boolean isCreated() {
        return isRunning();
    }

    public boolean isHealthy() {
        return isRunning();
    }

    public String getDriverClassName() {
        return "org.postgresql.Driver";
    }

    /** Returns the JDBC URL, without user and password. */
    public String getJdbcUrl() {
        String url = running().jdbcUrl();
        int query = url.indexOf('?');
        StringBuilder parameters = new StringBuilder();
        for (String parameter : url.substring(query + 1).split("&")) {
            if (!parameter.startsWith("user=") && !parameter.startsWith("password=")) {
                parameters.append('&').append(parameter);
            }
        }
        parameters.append(urlParameters);
        String beginning = url.substring(0, query);
        return parameters.isEmpty() ? beginning : beginning + "?" + parameters.substring(1);
    }

    public String getUsername() {
        return username.isEmpty() ? "postgres" : username;
    }

    public String getPassword() {
        if (database == null) {
            return password;
        }
        String user = address().getRawUserInfo();
        return URLDecoder.decode(user.substring(user.indexOf(':') + 1).replace("+", "%2B"), StandardCharsets.UTF_8);
    }

    public String getDatabaseName() {
        return database == null ? databaseName : database.name();
    }

    public String getTestQueryString() {
        return "SELECT 1";
    }

    public String getHost() {
        return address().getHost();
    }

    @Deprecated
    public String getContainerIpAddress() {
        return getHost();
    }

    public Integer getMappedPort(int port) {
        checkPort(port);
        return address().getPort();
    }

    public Integer getFirstMappedPort() {
        return getMappedPort(POSTGRESQL_PORT);
    }

    public List<Integer> getExposedPorts() {
        return List.of(POSTGRESQL_PORT);
    }

    public String getDockerImageName() {
        return image;
    }

    public Driver getJdbcDriverInstance() throws SQLException {
        return DriverManager.getDriver(getJdbcUrl());
    }

    public Connection createConnection(String queryString) throws SQLException {
        return createConnection(queryString, new Properties());
    }

    public Connection createConnection(String queryString, Properties properties) throws SQLException {
        String url = getJdbcUrl();
        String more = queryString.replaceFirst("^[?&]", "");
        Properties all = new Properties();
        all.putAll(properties);
        all.putIfAbsent("user", getUsername());
        all.putIfAbsent("password", getPassword());
        return DriverManager.getConnection(more.isEmpty() ? url : url + (url.contains("?") ? "&" : "?") + more, all);
    }

    private Database running() {
        if (database == null) {
            throw new IllegalStateException("the container does not run: call start() first");
        }
        return database;
    }

    private URI address() {
        return URI.create(running().url());
    }

    private static void checkPort(Integer port) {
        if (!POSTGRESQL_PORT.equals(port)) {
            throw new IllegalArgumentException("port " + port + " is not mapped: there is " + POSTGRESQL_PORT + " alone");
        }
    }

    private static String encode(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
    }

    @Override
    public String toString() {
        return "PostgreSQLContainer(" + image + ")";
    }
}
