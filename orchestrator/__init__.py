"""From an audit specification to a finished run: spec, plan, dispatch, command line."""
