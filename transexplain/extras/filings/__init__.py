"""Documents that somebody has to publish, and the sections of a report that they rest on."""
