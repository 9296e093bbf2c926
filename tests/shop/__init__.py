"""The app that docs/own-step.md tells of: invoices and tickets of a shop; its tables are there in tests only."""
