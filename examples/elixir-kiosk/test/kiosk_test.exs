defmodule KioskTest do
  use Kiosk.DatabaseCase, async: true

  test "the first sale is number 1", %{db: db} do
    assert Kiosk.sell(db, 1) == {:ok, 1}
    assert Kiosk.copies(db, 1) == 19
  end

  test "all copies are there", %{db: db} do
    assert Kiosk.copies(db, 1) == 20
    assert Kiosk.sell(db, 1) == {:ok, 1}
  end

  test "what is sold out is not sold", %{db: db} do
    assert {:ok, 1} = Kiosk.sell(db, 2)
    assert :sold_out = Kiosk.sell(db, 2)
    assert Kiosk.copies(db, 2) == 0
  end

  test "the last copy is sold once", %{name: name} do
    customers =
      for _ <- 1..4 do
        Task.async(fn ->
          session = Kiosk.DatabaseCase.connect(name)
          sale = Kiosk.sell(session, 2)
          :pgsql.terminate(session)
          sale
        end)
      end

    assert Enum.frequencies(Task.await_many(customers)) == %{{:ok, 1} => 1, :sold_out => 3}
  end
end
