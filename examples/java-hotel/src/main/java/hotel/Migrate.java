package hotel;

import java.util.Map;
import org.flywaydb.core.Flyway;

/** Brings the database that PGHOST, PGPORT and so on name to the newest schema. */
public final class Migrate {

    private Migrate() {}

    public static void main(String[] arguments) {
        Flyway.configure().dataSource(url(System.getenv()), null, null).load().migrate();
    }

    /** Tests connect with a password, but the setup of a template doesn't need a password. */
    static String url(Map<String, String> environment) {
        String url = "jdbc:postgresql://" + environment.get("PGHOST") + ":" + environment.get("PGPORT") + "/"
                + environment.get("PGDATABASE") + "?user=" + environment.get("PGUSER");
        String password = environment.get("PGPASSWORD");
        return password == null ? url : url + "&password=" + password;
    }
}
