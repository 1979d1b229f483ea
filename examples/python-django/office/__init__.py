"""A ticket office: sells the seats of events, each of them once."""
