from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orders", "0001_customers")]
    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.AutoField(primary_key=True)),
                ("customer_id", models.IntegerField()),
                ("total", models.IntegerField()),
                ("note", models.CharField(max_length=20, null=True)),
            ],
            options={"db_table": "orders"},
        ),
    ]
