using System;
using Npgsql;

public abstract class DatabaseTest : IDisposable
{
    protected readonly NpgsqlConnection Db;

    // A new name is a fresh, migrated database. xunit makes an object of the class for each test.
    protected DatabaseTest()
    {
        Db = new NpgsqlConnection(new NpgsqlConnectionStringBuilder
        {
            Host = Environment.GetEnvironmentVariable("PGHOST"),
            Port = int.Parse(Environment.GetEnvironmentVariable("PGPORT")),
            Username = Environment.GetEnvironmentVariable("PGUSER"),
            Password = Environment.GetEnvironmentVariable("PGPASSWORD"),
            Database = "test_" + Guid.NewGuid().ToString("N"),
            Pooling = false,
        }.ConnectionString);
        Db.Open();
    }

    public void Dispose()
    {
        Db.Dispose();
    }
}
