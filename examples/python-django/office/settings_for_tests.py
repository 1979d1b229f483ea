"""The settings, with test databases from pgfresh. Only one line is needed."""

from .settings import *  # noqa: F403
from .settings import DATABASES

DATABASES["default"]["ENGINE"] = "pgfresh.django"
