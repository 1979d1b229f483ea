import os

SECRET_KEY = "for tests only"
INSTALLED_APPS = ["orders"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
# Host, port, user and password come from PGHOST and so on, which libpq reads.
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"]}}
