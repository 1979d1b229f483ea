require "active_record"
require "securerandom"

RSpec.configure do |config|
  # A new name is a fresh, migrated database. Host, user and password come from PG*.
  config.before do
    ActiveRecord::Base.establish_connection(adapter: "postgresql", database: "test_#{SecureRandom.hex(8)}")
  end

  config.after { ActiveRecord::Base.remove_connection }
end
