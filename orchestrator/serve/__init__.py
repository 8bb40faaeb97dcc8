"""Pages over the store for a browser, read-only; needs the extra `serve`."""
