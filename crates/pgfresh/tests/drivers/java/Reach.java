import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;

/** Prints the database that a JDBC URL with several hosts leads to, and whether its server is a standby. */
final class Reach {
    private Reach() {
    }

    public static void main(String[] arguments) throws SQLException {
        try (Connection connection = DriverManager.getConnection(arguments[0]);
                Statement statement = connection.createStatement();
                ResultSet rows = statement.executeQuery("SELECT current_database(), pg_is_in_recovery()")) {
            rows.next();
            System.out.println(rows.getString(1) + " " + rows.getBoolean(2));
        }
    }
}
