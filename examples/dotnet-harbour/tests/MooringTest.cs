using System;
using Npgsql;
using Xunit;

public class MooringTest : DatabaseTest
{
    [Fact]
    public void TheFirstCallIsNumber1()
    {
        Assert.Equal(1, new Harbour(Db).Moor("Ida", 10));
    }

    [Fact]
    public void TheHarbourBeginsEmpty()
    {
        var harbour = new Harbour(Db);
        Assert.Equal(0L, harbour.Moored());
        Assert.Equal(1, harbour.Moor("Ida", 10));
        Assert.Equal(1L, harbour.Moored());
    }

    [Fact]
    public void AShipThatIsTooLongGetsNoBerth()
    {
        Assert.Throws<InvalidOperationException>(() => new Harbour(Db).Moor("Titan", 41));
    }

    [Fact]
    public void AnotherConnectionSeesWhatIsCommitted()
    {
        new Harbour(Db).Moor("Ida", 10);
        var settings = new NpgsqlConnectionStringBuilder(Db.ConnectionString)
        {
            Password = Environment.GetEnvironmentVariable("PGPASSWORD"),
        };
        using (var other = new NpgsqlConnection(settings.ConnectionString))
        {
            other.Open();
            Assert.Equal(1L, new Harbour(other).Moored());
        }
    }
}
