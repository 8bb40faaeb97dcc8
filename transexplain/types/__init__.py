"""The nouns of the software: frozen records with units."""
