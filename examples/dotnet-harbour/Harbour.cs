using System;
using Npgsql;

/// <summary>Gives each berth to one ship.</summary>
public class Harbour
{
    readonly NpgsqlConnection db;

    public Harbour(NpgsqlConnection db)
    {
        this.db = db;
    }

    /// <summary>Moors a ship. Returns the number of its port call.</summary>
    public int Moor(string ship, int metres)
    {
        const string sql = @"
            INSERT INTO calls (berth, ship)
            SELECT name, @ship FROM berths
            WHERE metres >= @metres AND name NOT IN (SELECT berth FROM calls)
            ORDER BY metres LIMIT 1
            RETURNING number";
        using (var command = new NpgsqlCommand(sql, db))
        {
            command.Parameters.AddWithValue("ship", ship);
            command.Parameters.AddWithValue("metres", metres);
            return (int)(command.ExecuteScalar() ?? throw new InvalidOperationException("no berth for " + ship));
        }
    }

    public long Moored()
    {
        using (var command = new NpgsqlCommand("SELECT count(*) FROM calls", db))
        {
            return (long)command.ExecuteScalar();
        }
    }
}
