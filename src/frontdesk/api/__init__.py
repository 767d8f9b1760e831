"""The HTTP API: routes bound from the operation registry, the authentication gate, problems, the callback."""
