"""Extras: what few audits need. Tables name them; the core imports none of them."""
