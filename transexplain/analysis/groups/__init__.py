"""Entity groups: lexicons, matching, mentions, mergeable aggregates and the group table."""
