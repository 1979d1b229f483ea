package bakery;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import org.junit.jupiter.api.Test;
import org.springframework.beans.factory.annotation.Autowired;
import org.springframework.boot.test.context.SpringBootTest;
import org.springframework.test.context.DynamicPropertyRegistry;
import org.springframework.test.context.DynamicPropertySource;
import org.springframework.transaction.annotation.Transactional;
import pgfresh.Database;

/** Uses one database for the Spring context. Spring rolls each test back. */
@SpringBootTest
@Transactional
class BakeryTest {
    @Autowired Bakery bakery;

    @DynamicPropertySource
    static void database(DynamicPropertyRegistry registry) {
        Database database = Database.fresh();
        registry.add("spring.datasource.url", database::jdbcUrl);
    }

    @Test
    void breadIsSoldUntilNoneIsLeft() {
        bakery.bake("rye", 3);
        bakery.sell("Ada", "rye", 2);
        assertEquals(1, bakery.left("rye"));
        assertThrows(Bakery.SoldOut.class, () -> bakery.sell("Bob", "rye", 2));
        assertEquals(1, bakery.left("rye"));
    }

    @Test
    void theShelvesBeginEmpty() {
        assertEquals(0, bakery.left("rye"));
        bakery.bake("rye", 1);
        assertEquals(1, bakery.left("rye"));
    }
}
