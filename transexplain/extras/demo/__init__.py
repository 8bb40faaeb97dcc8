"""The demo: small corpora, the classifiers trained on them, and their audits."""
