"""The browser edge: translates between forms, pages and the operations."""
