import os

pytest_plugins = ["pytester"]

# Each test that runs pytest in a directory of its own starts a background server there.
os.environ["PGFRESH_IDLE"] = "20s"
