from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("orders", "0002_orders")]
    operations = [
        migrations.RunSQL(
            "INSERT INTO customers (name) SELECT 'Customer ' || number FROM generate_series(1, 100) AS number"
        ),
        migrations.RunSQL(
            "INSERT INTO orders (customer_id, total)"
            " SELECT 1 + number % 100, number FROM generate_series(1, 1000) AS number"
        ),
    ]
