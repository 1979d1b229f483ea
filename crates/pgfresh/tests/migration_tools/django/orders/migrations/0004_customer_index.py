from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orders", "0003_rows")]
    operations = [
        migrations.AddIndex("order", models.Index(fields=["customer_id"], name="orders_customer_id")),
    ]
