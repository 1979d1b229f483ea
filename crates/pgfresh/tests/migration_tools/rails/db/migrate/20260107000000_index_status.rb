class IndexStatus < ActiveRecord::Migration[6.1]
  disable_ddl_transaction!

  def up
    add_index :orders, :status, name: "orders_status", algorithm: :concurrently
  end
end
