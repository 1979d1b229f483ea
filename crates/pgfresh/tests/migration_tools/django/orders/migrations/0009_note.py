from django.db import migrations, models


def fill(apps, schema_editor):
    apps.get_model("orders", "Order").objects.filter(note=None).update(note="")


class Migration(migrations.Migration):
    dependencies = [("orders", "0008_bigint")]
    operations = [
        migrations.RunPython(fill),
        migrations.AlterField("order", "note", models.CharField(max_length=40, default="")),
    ]
