from django.db import migrations

USUAL = {"students": 40, "seniors": 20, "members": 15}


def make_usual_discounts(apps, schema_editor):
    discount = apps.get_model("tickets", "Discount")
    discount.objects.bulk_create(
        discount(name=name, percent=percent) for name, percent in USUAL.items()
    )


class Migration(migrations.Migration):
    dependencies = [("tickets", "0001_first")]
    operations = [migrations.RunPython(make_usual_discounts, migrations.RunPython.noop)]
