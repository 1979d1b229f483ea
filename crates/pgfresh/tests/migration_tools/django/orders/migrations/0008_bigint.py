from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orders", "0007_status_index")]
    operations = [
        migrations.AlterField("order", "id", models.BigAutoField(primary_key=True)),
    ]
