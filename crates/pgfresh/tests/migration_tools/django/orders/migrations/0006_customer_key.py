from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orders", "0005_status")]
    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RemoveField("order", "customer_id"),
                migrations.AddField(
                    "order", "customer", models.ForeignKey("orders.customer", models.CASCADE, default=0)
                ),
            ],
            database_operations=[
                migrations.RunSQL(
                    "ALTER TABLE orders ADD CONSTRAINT orders_customer_id_fkey"
                    " FOREIGN KEY (customer_id) REFERENCES customers (id)"
                ),
            ],
        ),
    ]
