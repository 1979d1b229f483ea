package orchard;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import org.junit.jupiter.api.Test;
import pgfresh.FreshDatabase;

class TreesTest {
    @Test
    void theOrchardBeginsEmpty(@FreshDatabase String url) throws SQLException {
        try (Connection connection = DriverManager.getConnection(url);
                Statement statement = connection.createStatement();
                ResultSet result = statement.executeQuery("SELECT count(*) FROM trees")) {
            result.next();
            assertEquals(0, result.getInt(1));
        }
    }
}
