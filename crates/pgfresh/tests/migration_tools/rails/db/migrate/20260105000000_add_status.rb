class AddStatus < ActiveRecord::Migration[6.1]
  def up
    add_column :orders, :status, :text, null: false, default: "new"
  end
end
