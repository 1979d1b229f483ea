from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel(
            name="Customer",
            fields=[
                ("id", models.AutoField(primary_key=True)),
                ("name", models.TextField()),
                ("email", models.CharField(max_length=80, null=True)),
            ],
            options={"db_table": "customers"},
        ),
    ]
