from orders import *  # noqa: F403
