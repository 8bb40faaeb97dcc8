"""Files of this machine and of object stores: paths, copies and atomic writes."""
