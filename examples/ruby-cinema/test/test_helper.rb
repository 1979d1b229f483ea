require "minitest/autorun"
require "pg"
require "securerandom"

class DatabaseTest < Minitest::Test
  parallelize_me!

  # A new name is a fresh, migrated database. Host, user and password come from PG*.
  def setup
    @name = "test_#{SecureRandom.hex(8)}"
    @db = PG.connect(dbname: @name)
  end

  def teardown
    @db&.close
  end
end
