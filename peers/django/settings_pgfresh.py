from settings import *  # noqa: F403

DATABASES["default"]["ENGINE"] = "pgfresh.django"  # noqa: F405
