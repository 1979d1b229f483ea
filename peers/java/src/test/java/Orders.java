import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.sql.Connection;
import java.sql.SQLException;

final class Orders {
    static void order(Connection connection, int number) throws SQLException {
        try (var statement = connection.createStatement()) {
            statement.execute("INSERT INTO customers (name, email) VALUES ('Ada', 'ada@example.org')");
            statement.execute("INSERT INTO orders (customer, cents) SELECT id, " + number + " FROM customers");
            var orders = statement.executeQuery("SELECT id, cents FROM orders");
            assertTrue(orders.next());
            assertEquals(1, orders.getInt(1));
            assertEquals(number, orders.getInt(2));
            assertFalse(orders.next());
        }
    }
}
