import os

from bikes.app import create_app

app = create_app(os.environ["DATABASE_URL"])
