from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("orders", "0009_note")]
    operations = [
        migrations.RenameField("customer", "email", "mail"),
    ]
