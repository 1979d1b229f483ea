class RequireNote < ActiveRecord::Migration[6.1]
  def up
    change_column_null :orders, :note, false, ""
    change_column :orders, :note, :string, limit: 40
  end
end
