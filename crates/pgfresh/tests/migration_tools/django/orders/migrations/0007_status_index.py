from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("orders", "0006_customer_key")]
    operations = [
        AddIndexConcurrently("order", models.Index(fields=["status"], name="orders_status")),
    ]
