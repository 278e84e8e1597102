"""The handlers of the API, a file for each noun. They read and act through the admin of the app, and know nothing of HTTP."""
