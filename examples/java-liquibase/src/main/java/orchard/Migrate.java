package orchard;

import java.sql.Connection;
import java.sql.DriverManager;
import java.util.Map;
import java.util.Properties;
import liquibase.command.CommandScope;
import liquibase.command.core.UpdateCommandStep;
import liquibase.command.core.helpers.DbUrlConnectionArgumentsCommandStep;
import liquibase.database.Database;
import liquibase.database.DatabaseFactory;
import liquibase.database.jvm.JdbcConnection;

/** Brings the database that PGHOST, PGPORT and so on name to the newest schema. */
public final class Migrate {

    private Migrate() {}

    public static void main(String[] arguments) throws Exception {
        Map<String, String> environment = System.getenv();
        String url = "jdbc:postgresql://%s:%s/%s"
                .formatted(environment.get("PGHOST"), environment.get("PGPORT"), environment.get("PGDATABASE"));
        Properties account = new Properties();
        account.put("user", environment.get("PGUSER"));
        // The setup of a template needs no password.
        account.put("password", environment.getOrDefault("PGPASSWORD", ""));
        try (Connection connection = DriverManager.getConnection(url, account)) {
            update(connection);
        }
    }

    /** Runs the change sets that the database lacks. */
    static void update(Connection connection) throws Exception {
        Database database = DatabaseFactory.getInstance().findCorrectDatabaseImplementation(new JdbcConnection(connection));
        new CommandScope(UpdateCommandStep.COMMAND_NAME)
                .addArgumentValue(DbUrlConnectionArgumentsCommandStep.DATABASE_ARG, database)
                .addArgumentValue(UpdateCommandStep.CHANGELOG_FILE_ARG, "db/changelog.yaml")
                .execute();
    }
}
