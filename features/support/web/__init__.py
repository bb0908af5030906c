"""A web server, its clients, and the model that it serves."""
