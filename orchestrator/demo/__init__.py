"""Raw material of the demo: small corpora and the classifiers trained on them."""
