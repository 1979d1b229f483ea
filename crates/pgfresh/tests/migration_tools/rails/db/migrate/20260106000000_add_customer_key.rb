class AddCustomerKey < ActiveRecord::Migration[6.1]
  def up
    add_foreign_key :orders, :customers, name: "orders_customer_id_fkey"
  end
end
