"""Models of two towers: the similarity of a picture and a text."""
