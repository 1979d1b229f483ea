package orchard;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.time.LocalDate;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import pgfresh.FreshDatabase;

/** Each test has an orchard without trees. */
class OrchardTest {

    private static final LocalDate DAY = LocalDate.of(2026, 9, 1);

    private Connection connection;
    private Orchard orchard;

    @BeforeEach
    void open(@FreshDatabase String url) throws SQLException {
        connection = DriverManager.getConnection(url);
        orchard = new Orchard(connection);
    }

    @AfterEach
    void close() throws SQLException {
        connection.close();
    }

    @Test
    void treesAreNumberedFromOne() throws SQLException {
        assertEquals(1, orchard.plant("pear", DAY));
    }

    @Test
    void yieldIsThatOfTheKind() throws SQLException {
        int pear = orchard.plant("pear", DAY);
        int plum = orchard.plant("plum", DAY);
        orchard.harvest(pear, DAY, new BigDecimal("12.5"));
        orchard.harvest(pear, DAY.plusDays(1), new BigDecimal("2.5"));
        orchard.harvest(plum, DAY, BigDecimal.ONE);
        assertEquals(new BigDecimal("15.0"), orchard.yield("pear"));
    }

    @Test
    void aTreeIsHarvestedOnceADay() throws SQLException {
        int tree = orchard.plant("pear", DAY);
        orchard.harvest(tree, DAY, BigDecimal.ONE);
        assertThrows(SQLException.class, () -> orchard.harvest(tree, DAY, BigDecimal.TEN));
    }
}
