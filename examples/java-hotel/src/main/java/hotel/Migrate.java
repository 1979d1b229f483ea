package hotel;

import java.util.Map;
import org.flywaydb.core.Flyway;

/** Brings the database that PGHOST, PGPORT and so on name to the newest schema. */
public final class Migrate {

    private Migrate() {}

    public static void main(String[] arguments) {
        Flyway.configure().dataSource(url(System.getenv()), null, null).load().migrate();
    }

    /** The driver knows no unix sockets, which is how the template is reached, without a factory for them. */
    static String url(Map<String, String> environment) {
        String host = environment.get("PGHOST");
        String port = environment.get("PGPORT");
        String rest = environment.get("PGDATABASE") + "?user=" + environment.get("PGUSER");
        if (host.startsWith("/")) {
            return "jdbc:postgresql://localhost/" + rest
                    + "&socketFactory=org.newsclub.net.unix.AFUNIXSocketFactory$FactoryArg"
                    + "&socketFactoryArg=" + host + "/.s.PGSQL." + port;
        }
        return "jdbc:postgresql://" + host + ":" + port + "/" + rest + "&password=" + environment.get("PGPASSWORD");
    }
}
