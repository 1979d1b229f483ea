class BigintId < ActiveRecord::Migration[6.1]
  def up
    change_column :orders, :id, :bigint
  end
end
