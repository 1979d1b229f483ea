from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orders", "0004_customer_index")]
    operations = [
        migrations.AddField("order", "status", models.TextField(default="new", db_default="new")),
    ]
