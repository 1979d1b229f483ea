using System;
using Npgsql;
using Xunit;

public class BerthTest : DatabaseTest
{
    [Fact]
    public void AFullHarbourTakesNoShip()
    {
        var harbour = new Harbour(Db);
        harbour.Moor("Ida", 10);
        harbour.Moor("Eva", 10);
        Assert.Throws<InvalidOperationException>(() => harbour.Moor("Lea", 10));
    }

    [Fact]
    public void TheSchemaCanChange()
    {
        using (var command = new NpgsqlCommand("ALTER TABLE berths ADD COLUMN depth int", Db))
        {
            command.ExecuteNonQuery();
        }
    }

    [Fact]
    public void NoOtherTestHasChangedTheSchema()
    {
        using (var command = new NpgsqlCommand("SELECT depth FROM berths", Db))
        {
            var refused = Assert.Throws<PostgresException>(() => command.ExecuteScalar());
            Assert.Equal("42703", refused.SqlState);
        }
    }
}
