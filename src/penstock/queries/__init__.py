"""Interactive queries: what an application's stores hold, asked while it runs."""
