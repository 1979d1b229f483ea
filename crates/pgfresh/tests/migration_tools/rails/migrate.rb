# Runs db/migrate as `rails db:migrate` does: Rails gives this work to Active Record.
require "active_record"

ActiveRecord::Base.establish_connection(ENV["DATABASE_URL"])
ActiveRecord::MigrationContext.new("db/migrate", ActiveRecord::SchemaMigration).migrate
