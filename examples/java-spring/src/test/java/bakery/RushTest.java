package bakery;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.stream.IntStream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.springframework.beans.factory.annotation.Autowired;
import org.springframework.boot.test.context.SpringBootTest;
import org.springframework.test.context.DynamicPropertyRegistry;
import org.springframework.test.context.DynamicPropertySource;
import pgfresh.Database;

/**
 * Several sessions commit, so pgfresh resets the database before each test. The test doesn't use a pool, because the
 * reset would close the pool's connections.
 */
@SpringBootTest(properties = "spring.datasource.type=org.springframework.jdbc.datasource.SimpleDriverDataSource")
class RushTest {
    static final Database DATABASE = Database.fresh();

    @Autowired Bakery bakery;

    @DynamicPropertySource
    static void database(DynamicPropertyRegistry registry) {
        registry.add("spring.datasource.url", DATABASE::jdbcUrl);
    }

    @BeforeEach
    void reset() {
        DATABASE.resetClosingSessions();
    }

    @Test
    void theLastLoavesAreSoldOnce() {
        bakery.bake("rye", 5);
        long sold = IntStream.range(0, 20).parallel().filter(this::buys).count();
        assertEquals(5, sold);
        assertEquals(0, bakery.left("rye"));
    }

    @Test
    void theFirstSaleIsNumberOne() {
        bakery.bake("rye", 1);
        assertEquals(1, bakery.sell("Ada", "rye", 1));
    }

    private boolean buys(int customer) {
        try {
            bakery.sell("customer " + customer, "rye", 1);
            return true;
        } catch (Bakery.SoldOut nothingLeft) {
            return false;
        }
    }
}
