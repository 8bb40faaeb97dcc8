"""Statistics on attributions: groups of entities, and strategies by which a model decides."""
