"""The settings, with test databases from pgfresh: this line is all that it needs."""

from .settings import *  # noqa: F403
from .settings import DATABASES

DATABASES["default"]["ENGINE"] = "pgfresh.django"
