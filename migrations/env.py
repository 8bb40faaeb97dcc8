"""Runs migrations on the connection that `transexplain.store.revisions` hands over."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=context.config.attributes["metadata"],
    render_as_batch=True,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
