package orchard;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DriverManager;
import java.time.LocalDate;
import org.junit.jupiter.api.Test;
import pgfresh.testcontainers.Container;
import pgfresh.testcontainers.PostgreSQLContainer;
import pgfresh.testcontainers.Testcontainers;

/** A Testcontainers suite where only the imports have changed. */
@Testcontainers
class ContainerTest {

    @Container
    private final PostgreSQLContainer<?> postgres =
            new PostgreSQLContainer<>("postgres:17-alpine").withDatabaseName("orchard");

    @Test
    void liquibaseFindsNothingToDo() throws Exception {
        try (Connection connection = DriverManager.getConnection(
                postgres.getJdbcUrl(), postgres.getUsername(), postgres.getPassword())) {
            Migrate.update(connection);
        }
        try (Connection connection = postgres.createConnection("")) {
            Orchard orchard = new Orchard(connection);
            orchard.harvest(orchard.plant("quince", LocalDate.EPOCH), LocalDate.EPOCH, BigDecimal.TEN);
            assertEquals(BigDecimal.TEN, orchard.yield("quince"));
        }
    }
}
