class IndexCustomer < ActiveRecord::Migration[6.1]
  def up
    add_index :orders, :customer_id, name: "orders_customer_id"
  end
end
