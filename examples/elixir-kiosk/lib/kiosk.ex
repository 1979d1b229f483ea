defmodule Kiosk do
  @moduledoc "Sells magazines as long as there are copies."

  @doc "Returns the number of the sale."
  def sell(db, magazine) when is_integer(magazine) do
    sold =
      rows(db, """
      WITH copy AS (
        UPDATE magazines SET copies = copies - 1 WHERE id = #{magazine} AND copies > 0 RETURNING id
      )
      INSERT INTO sales (magazine) SELECT id FROM copy RETURNING number
      """)

    case sold do
      [[number]] -> {:ok, String.to_integer(number)}
      [] -> :sold_out
    end
  end

  def copies(db, magazine) when is_integer(magazine) do
    [[copies]] = rows(db, "SELECT copies FROM magazines WHERE id = #{magazine}")
    String.to_integer(copies)
  end

  defp rows(db, sql) do
    {:ok, [{_command, _columns, rows}]} = :pgsql.squery(db, sql)
    rows
  end
end
