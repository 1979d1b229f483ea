package bakery;

import org.springframework.jdbc.core.simple.JdbcClient;
import org.springframework.stereotype.Service;
import org.springframework.transaction.annotation.Transactional;

/** Manages the loaves on the shelves, and their sales. */
@Service
public class Bakery {
    /** Thrown if there aren't enough loaves. */
    public static class SoldOut extends RuntimeException {}

    private final JdbcClient database;

    Bakery(JdbcClient database) {
        this.database = database;
    }

    public void bake(String bread, int loaves) {
        database.sql("""
                INSERT INTO shelves VALUES (:bread, :loaves)
                ON CONFLICT (bread) DO UPDATE SET loaves = shelves.loaves + :loaves""")
                .param("bread", bread)
                .param("loaves", loaves)
                .update();
    }

    /** Sells loaves. Returns the number of the sale. */
    @Transactional
    public int sell(String customer, String bread, int loaves) {
        int taken = database.sql("""
                UPDATE shelves SET loaves = loaves - :loaves WHERE bread = :bread AND loaves >= :loaves""")
                .param("bread", bread)
                .param("loaves", loaves)
                .update();
        if (taken == 0) {
            throw new SoldOut();
        }
        return database.sql("""
                INSERT INTO sales (customer, bread, loaves) VALUES (:customer, :bread, :loaves) RETURNING number""")
                .param("customer", customer)
                .param("bread", bread)
                .param("loaves", loaves)
                .query(Integer.class)
                .single();
    }

    public int left(String bread) {
        return database.sql("SELECT coalesce(sum(loaves), 0) FROM shelves WHERE bread = :bread")
                .param("bread", bread)
                .query(Integer.class)
                .single();
    }
}
