class CreateOrders < ActiveRecord::Migration[6.1]
  def up
    create_table :orders, id: :integer do |t|
      t.integer :customer_id, null: false
      t.integer :total, null: false
      t.string :note, limit: 20
    end
  end
end
