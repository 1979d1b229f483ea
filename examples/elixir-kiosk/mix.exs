defmodule Kiosk.MixProject do
  use Mix.Project

  def project do
    [
      app: :kiosk,
      version: "0.1.0",
      elixir: "~> 1.14",
      elixirc_paths: if(Mix.env() == :test, do: ["lib", "test/support"], else: ["lib"])
    ]
  end

  # Uses the driver from Debian's erlang-p1-pgsql, so that no Hex package is needed.
  def application, do: [extra_applications: [:crypto, :p1_pgsql]]
end
