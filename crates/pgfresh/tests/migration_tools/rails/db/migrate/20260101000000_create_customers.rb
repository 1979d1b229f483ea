class CreateCustomers < ActiveRecord::Migration[6.1]
  def up
    create_table :customers, id: :integer do |t|
      t.text :name, null: false
      t.string :email, limit: 80
    end
  end
end
