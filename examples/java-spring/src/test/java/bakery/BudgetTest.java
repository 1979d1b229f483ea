package bakery;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;
import org.springframework.jdbc.core.simple.JdbcClient;
import org.springframework.jdbc.datasource.SingleConnectionDataSource;
import pgfresh.Budget;
import pgfresh.FreshDatabase;

/** A test with a budget, which uses a separate database instead of the Spring context's. */
class BudgetTest {
    @Test
    @Budget(statements = 6, nPlusOne = 0)
    void aSaleIsTwoStatements(@FreshDatabase String url) {
        SingleConnectionDataSource connection = new SingleConnectionDataSource(url, true);
        try {
            Bakery bakery = new Bakery(JdbcClient.create(connection));
            bakery.bake("rye", 1);
            assertEquals(1, bakery.sell("Ada", "rye", 1));
        } finally {
            connection.destroy();
        }
    }
}
