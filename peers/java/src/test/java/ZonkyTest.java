import io.zonky.test.db.postgres.junit5.EmbeddedPostgresExtension;
import io.zonky.test.db.postgres.junit5.PreparedDbExtension;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.SQLException;
import javax.sql.DataSource;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.RepetitionInfo;
import org.junit.jupiter.api.extension.RegisterExtension;

class ZonkyTest {
    @RegisterExtension
    PreparedDbExtension database = EmbeddedPostgresExtension.preparedDatabase(ZonkyTest::migrate);

    static void migrate(DataSource template) throws SQLException {
        try (var connection = template.getConnection(); var statement = connection.createStatement()) {
            statement.execute(Files.readString(Path.of("../schema/00001_shop.sql")));
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    @RepeatedTest(30)
    void order(RepetitionInfo test) throws SQLException {
        try (var connection = database.getTestDatabase().getConnection()) {
            Orders.order(connection, test.getCurrentRepetition());
        }
    }
}
