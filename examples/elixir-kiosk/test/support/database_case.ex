defmodule Kiosk.DatabaseCase do
  use ExUnit.CaseTemplate

  # A new name is a fresh, migrated database.
  setup do
    name = "test_" <> Base.encode16(:crypto.strong_rand_bytes(8), case: :lower)
    db = connect(name)
    on_exit(fn -> :pgsql.terminate(db) end)
    %{db: db, name: name}
  end

  def connect(name) do
    {:ok, db} =
      :pgsql.connect(
        host: System.fetch_env!("PGHOST"),
        port: String.to_integer(System.fetch_env!("PGPORT")),
        user: System.fetch_env!("PGUSER"),
        password: System.fetch_env!("PGPASSWORD"),
        database: name,
        as_binary: true
      )

    db
  end
end
