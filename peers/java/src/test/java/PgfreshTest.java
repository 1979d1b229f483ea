import java.sql.DriverManager;
import java.sql.SQLException;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.RepetitionInfo;
import pgfresh.FreshDatabase;

class PgfreshTest {
    @RepeatedTest(30)
    void order(RepetitionInfo test, @FreshDatabase String url) throws SQLException {
        try (var connection = DriverManager.getConnection(url)) {
            Orders.order(connection, test.getCurrentRepetition());
        }
    }
}
