defmodule StockTest do
  use Kiosk.DatabaseCase, async: true

  test "the schema can change", %{db: db} do
    assert {:ok, ["ALTER TABLE"]} =
             :pgsql.squery(db, "ALTER TABLE magazines ADD COLUMN pages int")

    assert {:ok, ["UPDATE 2"]} = :pgsql.squery(db, "UPDATE magazines SET pages = 32")
  end

  test "no other test has changed the schema", %{db: db} do
    {:ok, [{:error, error}]} = :pgsql.squery(db, "SELECT pages FROM magazines")
    assert error[:code] == "42703"
  end

  test "everything can be deleted", %{db: db} do
    assert {:ok, ["DELETE 2"]} = :pgsql.squery(db, "DELETE FROM magazines")
    assert :sold_out = Kiosk.sell(db, 1)
  end
end
