package hotel;

import java.util.Map;
import org.flywaydb.core.Flyway;

/** Brings the database that PGHOST, PGPORT and so on name to the newest schema. */
public final class Migrate {

    private Migrate() {}

    public static void main(String[] arguments) {
        Flyway.configure().dataSource(url(System.getenv()), null, null).load().migrate();
    }

    /** There is a password where the tests connect, and none where the template is prepared. */
    static String url(Map<String, String> environment) {
        String url = "jdbc:postgresql://" + environment.get("PGHOST") + ":" + environment.get("PGPORT") + "/"
                + environment.get("PGDATABASE") + "?user=" + environment.get("PGUSER");
        String password = environment.get("PGPASSWORD");
        return password == null ? url : url + "&password=" + password;
    }
}
