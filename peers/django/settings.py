SECRET_KEY = "for tests"
INSTALLED_APPS = ["shop"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
# Host, port, user and password come from PGHOST and so on.
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "postgres"}}
