"""Tables with what a report says, in plain columns for people who ask by SQL."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_TYPES = {"t": sa.Text, "n": sa.BigInteger, "d": sa.Double, "b": sa.Boolean}
#: table -> its columns beside the key, with the letters of their types; a capital one: not null
_COLUMNS = {
    "run_result": """
        task:T model:T model_digest:T modality:T dtype:T dataset:T dataset_fingerprint:T
        method:T unit:T plan_digest:T reference:t correction:t practical_relevance:d
        practical_logit:d practical_probability:d practical_impact_ratio:d verdict_kind:T
        verdict:T version:T written:d
    """,
    "group_verdict": """
        group_name:T reference:T verdict:T answer:T stratum:T p:d reasons:T untested:T
        swap_effect:d swap_effect_low:d swap_effect_high:d swap_documents:n rate:d
        reference_rate:d impact_ratio:d items:n reference_items:n
    """,
    "group_result": """
        target:T class_name:T split_by:T split_value:T group_name:T reference:T documents:N
        mentions:N entities:N mean:d positive_share:d entity_mean:d entity_mean_low:d
        entity_mean_high:d difference:d difference_low:d difference_high:d interval_by:t p:d
        adjusted_p:d detectable:d verdict:T suppressed:B reason:T note:T overall_verdict:t
        item_rank:d mention_q05:d mention_q25:d mention_q50:d mention_q75:d mention_q95:d
        background_words:n background_mean:d background_difference:d background_difference_low:d
        background_difference_high:d
    """,
    "counterfactual_result": """
        kind:T group_name:T reference:T answer:T stratum:T documents:N clusters:N entities:N
        reference_entities:N effect:d effect_low:d effect_high:d effect_of_names_low:d
        effect_of_names_high:d probability:d probability_low:d probability_high:d flips:d
        own_flips:d noise:d varies:d varies_p:d per_position:d p:d equivalent:B needed:n
        needed_of:T
    """,
    "outcome_result": """
        group_name:T reference:T answer:T stratum:T rate_difference:d rate_difference_low:d
        rate_difference_high:d impact_ratio:d impact_ratio_low:d impact_ratio_high:d p:d
        equivalent:B items:N selected:N rate:d rate_low:d rate_high:d mean_probability:d
        mean_probability_low:d mean_probability_high:d label_rate:d label_rate_low:d
        label_rate_high:d label_rate_items:n error_rate:d error_rate_low:d error_rate_high:d
        error_rate_items:n true_positive_rate:d true_positive_rate_low:d
        true_positive_rate_high:d true_positive_rate_items:n false_positive_rate:d
        false_positive_rate_low:d false_positive_rate_high:d false_positive_rate_items:n
        calibration:d reference_items:N reference_selected:N reference_rate:d
        reference_rate_low:d reference_rate_high:d reference_mean_probability:d
        reference_mean_probability_low:d reference_mean_probability_high:d
        reference_label_rate:d reference_label_rate_low:d reference_label_rate_high:d
        reference_label_rate_items:n reference_error_rate:d reference_error_rate_low:d
        reference_error_rate_high:d reference_error_rate_items:n reference_true_positive_rate:d
        reference_true_positive_rate_low:d reference_true_positive_rate_high:d
        reference_true_positive_rate_items:n reference_false_positive_rate:d
        reference_false_positive_rate_low:d reference_false_positive_rate_high:d
        reference_false_positive_rate_items:n reference_calibration:d
    """,
    "entity_result": """
        target:T class_name:T group_name:T entity:T documents:N mentions:N mean:d
        magnitude_share:d positive:N item_rank:d shrunken:d shrunken_low:d shrunken_high:d
        place:n reported:B
    """,
    "class_word": """
        target:T class_name:T word:T documents:N mentions:N relevance:d magnitude:d mean:d
        function_word:B raising_by_mean:n raising_by_total:n lowering_by_mean:n
        lowering_by_total:n
    """,
    "run_metric": """
        name:T target:T part:T value:D unit:T items:n
    """,
}
_SINGLE = "run_result"  #: has one row for a run, and so no ordinal


def upgrade() -> None:
    for name, columns in _COLUMNS.items():
        key = ["run_id"] if name == _SINGLE else ["run_id", "ordinal"]
        ordinal = [] if name == _SINGLE else [sa.Column("ordinal", sa.Integer(), nullable=False)]
        op.create_table(
            name,
            sa.Column("run_id", sa.Text(), nullable=False),
            *ordinal,
            *map(_column, columns.split()),
            sa.PrimaryKeyConstraint(*key, name=f"pk_{name}"),
            sa.ForeignKeyConstraint(
                ["run_id"], ["run.id"], name=f"fk_{name}_run", ondelete="CASCADE"
            ),
        )


def downgrade() -> None:
    for name in reversed(_COLUMNS):
        op.drop_table(name)


def _column(described: str) -> "sa.Column[object]":
    name, letter = described.split(":")
    return sa.Column(name, _TYPES[letter.lower()](), nullable=letter.islower())
