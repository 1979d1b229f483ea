package orchard;

import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.LocalDate;

/** Manages trees and their harvests. */
public final class Orchard {

    private final Connection connection;

    public Orchard(Connection connection) {
        this.connection = connection;
    }

    /** Plants a tree and returns its number. */
    public int plant(String kind, LocalDate day) throws SQLException {
        String sql = "INSERT INTO trees (kind, planted) VALUES (?, ?) RETURNING id";
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            statement.setString(1, kind);
            statement.setObject(2, day);
            try (ResultSet result = statement.executeQuery()) {
                result.next();
                return result.getInt(1);
            }
        }
    }

    public void harvest(int tree, LocalDate day, BigDecimal kilograms) throws SQLException {
        String sql = "INSERT INTO harvests VALUES (?, ?, ?)";
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            statement.setInt(1, tree);
            statement.setObject(2, day);
            statement.setBigDecimal(3, kilograms);
            statement.execute();
        }
    }

    /** Returns the kilograms that all trees of a kind yielded in all years. */
    public BigDecimal yield(String kind) throws SQLException {
        String sql = "SELECT coalesce(sum(kilograms), 0) FROM harvests JOIN trees ON id = tree WHERE kind = ?";
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            statement.setString(1, kind);
            try (ResultSet result = statement.executeQuery()) {
                result.next();
                return result.getBigDecimal(1);
            }
        }
    }
}
