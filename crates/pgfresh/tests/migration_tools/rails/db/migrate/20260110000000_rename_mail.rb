class RenameMail < ActiveRecord::Migration[6.1]
  def up
    rename_column :customers, :email, :mail
  end
end
