"""The HTTP API: FastAPI routes bound from the operation registry, the authentication gate, problems, the callback route."""
