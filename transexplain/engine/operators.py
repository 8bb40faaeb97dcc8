"""The table of operators: the kind of each, how it moves the item axis, and its rules.

Functions are known by name, because one operator arrives in many spellings (`torch.add`,
`Tensor.add`, `+`, `+=`). `OPERATORS` holds a row for each spelling, `KINDS` what all operators of
one kind share: their rules in each form, and how these are reported. An operator without a kind
that hands a carrier of relevance on is refused by the mode, by name: an unknown operator never
gets a silent plain gradient.
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from typing import Any, Literal

from transexplain.registry import load

#: how the item axis of a carrier moves: see `item_axis.follow`
AxisMove = Literal[
    "aligned",  # elementwise, matrix products: aligned from the right
    "reshape",  # the number of elements behind the item's coordinate stays
    "view",  # run on a probe
    "reduction",  # axes may go
    "kept",  # works on (B, C, ...)
    "contraction",
    "stack",
    "einsum",
    "scatter",
]
Form = Literal["gradient", "relevance", "rescale"]
#: the choice of a composite that decides which rule a kind gets
Choice = Literal["attention", "norm", "activation", "product", "linear"]


@dataclass(frozen=True, slots=True)
class Kind:
    """What the operators of one kind share.

    Rules are `module:function`: the module one of `_MODULES`, or its whole name.
    """

    gradient: str  #: the rule of the gradient form
    relevance: str  #: the rule of the relevance form (Chefer et al. 2021)
    rescale: str  #: the rule of DeepLIFT
    _: KW_ONLY
    wording: str = "linear: by value"  #: how the census reports the rule
    decided_by: Choice | None = None  #: the choice of the composite that decides, else none does
    words: Mapping[str, str] = field(default_factory=dict)  #: value of that choice -> wording
    axis: AxisMove = "aligned"  #: of operators whose row says nothing else
    weight_at: tuple[int, str] | None = None  #: where the weight of a linear operator stands
    held: bool = False  #: a rule may hold its outcome constant
    writes: bool = False  #: writes into its first argument, whatever it is called


@dataclass(frozen=True, kw_only=True, slots=True)
class Operator:
    """One spelling of an operator."""

    kind: str | None  #: None: it never carries relevance on
    axis: AxisMove
    gate: bool = False  #: a sigmoid: as a factor of another carrier it only lets through
    norm: bool = False  #: a scale, whatever it is computed from
    power: bool = False  #: takes an exponent
    reflected: bool = False  #: `other` comes first
    inplace_flag: bool = False  #: takes `inplace` by position
    shape_only: bool = False  #: takes the shape and the type of its first argument, no value
    detaches: bool = False  #: cuts the gradient off


_MODULES = {
    "rules": "transexplain.engine.rules",
    "layer_rules": "transexplain.engine.layer_rules",
    "relevance_rules": "transexplain.engine.relevance_rules",
    "rescale_rules": "transexplain.engine.rescale_rules",
}
_MEASURED = "gradient, measured"
_WEIGHTS, _SCALE = "weights constant (AH)", "scale constant (LN)"
_SOFTMAX = "softmax rule, measured"
_BY_NORM = {"constant": _SCALE, "gradient": _MEASURED}
_OF_NORM: dict[str, Any] = {"decided_by": "norm", "words": _BY_NORM}
_OF_PRODUCT: dict[str, Any] = {"decided_by": "product"}
_OF_WEIGHT: dict[str, Any] = {"decided_by": "linear"}

KINDS: dict[str, Kind] = {
    # every output is one of the inputs
    "structural": Kind("rules:structural", "rules:structural", "rescale_rules:structural"),
    "extremum": Kind("rules:extremum", "rules:extremum", "rescale_rules:extremum"),
    # linear without parameters, in which outputs are made of several inputs
    "mixing": Kind("rules:mixing", "relevance_rules:mixing", "rescale_rules:mixing", axis="kept"),
    # linear too, but what a scale is made of
    "reduction": Kind("rules:reduction", "relevance_rules:reduction", "rescale_rules:linear"),
    "scale": Kind(
        "rules:activation",
        "relevance_rules:activation",
        "rescale_rules:scale",
        held=True,
        **_OF_NORM,
    ),
    "dropout": Kind(
        "rules:dropout",
        "rules:dropout",
        "rescale_rules:dropout",
        wording="identity in evaluation",
    ),
    "sum": Kind("rules:add", "relevance_rules:add", "rescale_rules:linear"),
    "negation": Kind("rules:negation", "relevance_rules:negation", "rescale_rules:linear"),
    "product": Kind(
        "rules:product", "relevance_rules:product", "rescale_rules:quadratic", **_OF_PRODUCT
    ),
    "matmul": Kind(
        "rules:matmul", "relevance_rules:matmul", "rescale_rules:quadratic", **_OF_PRODUCT
    ),
    "einsum": Kind(
        "rules:matmul",
        "relevance_rules:matmul",
        "rescale_rules:quadratic",
        axis="einsum",
        **_OF_PRODUCT,
    ),
    "division": Kind(
        "rules:division", "relevance_rules:division", "rescale_rules:division", **_OF_PRODUCT
    ),
    "logsumexp": Kind(
        "rules:logsumexp", "rules:shared", "rescale_rules:logsumexp", wording=_MEASURED
    ),
    "triangular": Kind(
        "rules:triangular", "relevance_rules:triangular", "rescale_rules:triangular", **_OF_PRODUCT
    ),
    # linear in all that carries; constants that come in are booked
    "concat": Kind("rules:concat", "rules:concat", "rescale_rules:linear"),
    "fill": Kind("rules:fill", "rules:fill", "rescale_rules:linear"),
    "masked_scatter": Kind("rules:masked_scatter", "rules:masked_scatter", "rescale_rules:linear"),
    "placing": Kind("rules:placed", "rules:placed", "rescale_rules:linear"),
    "assignment": Kind("rules:assignment", "rules:assignment", "rescale_rules:linear", writes=True),
    "overwrite": Kind("rules:overwrite", "rules:overwrite", "rescale_rules:linear", writes=True),
    "scatter": Kind("rules:scatter", "relevance_rules:proportional", "rescale_rules:linear"),
    "pad": Kind("rules:pad", "rules:pad", "rescale_rules:linear"),
    "activation": Kind(
        "rules:activation",
        "relevance_rules:activation",
        "rescale_rules:activation",
        decided_by="activation",
        words={"identity": "identity f(x)/x", "gradient": _MEASURED},
    ),
    "linear": Kind(
        "layer_rules:with_weight",
        "relevance_rules:with_weight",
        "rescale_rules:quadratic",
        weight_at=(1, "weight"),
        **_OF_WEIGHT,
    ),
    "addmm": Kind(
        "layer_rules:with_weight",
        "relevance_rules:with_weight",
        "rescale_rules:quadratic",
        weight_at=(2, "mat2"),
        **_OF_WEIGHT,
    ),
    "convolution": Kind(
        "layer_rules:with_weight",
        "relevance_rules:with_weight",
        "rescale_rules:quadratic",
        weight_at=(1, "weight"),
        axis="kept",
        **_OF_WEIGHT,
    ),
    "layer_norm": Kind(
        "layer_rules:layer_norm", "relevance_rules:passed", "rescale_rules:layer_norm", **_OF_NORM
    ),
    "rms_norm": Kind(
        "layer_rules:rms_norm", "relevance_rules:passed", "rescale_rules:rms_norm", **_OF_NORM
    ),
    "group_norm": Kind(
        "layer_rules:group_norm",
        "relevance_rules:passed",
        "rescale_rules:group_norm",
        axis="kept",
        **_OF_NORM,
    ),
    "batch_norm": Kind(
        "layer_rules:batch_norm",
        "relevance_rules:passed",
        "rescale_rules:batch_norm",
        wording="linear: fixed statistics",
        axis="kept",
    ),
    "softmax": Kind(
        "layer_rules:softmax",
        "relevance_rules:softmax",
        "rescale_rules:softmax",
        decided_by="attention",
        words={"constant": _WEIGHTS, "gradient": _MEASURED, "softmax": _SOFTMAX},
        held=True,
    ),
    "attention": Kind(
        "layer_rules:attention",
        "rules:composite",
        "rescale_rules:attention",
        decided_by="attention",
        words={
            "constant": _WEIGHTS,
            "gradient": _MEASURED,
            "softmax": f"{_SOFTMAX}, products halved",
        },
        held=True,
    ),
    # made of the others
    "composite": Kind(
        "rules:composite", "rules:composite", "rescale_rules:composite", wording="seen from inside"
    ),
}


def _rows(kind: str | None, names: str, **properties: Any) -> dict[str, Operator]:
    """One row for each of `names`; `axis` where it is not that of the kind."""
    axis = KINDS[kind].axis if kind in KINDS else "aligned"
    return dict.fromkeys(names.split(), Operator(kind=kind, **{"axis": axis, **properties}))


OPERATORS: dict[str, Operator] = {
    **_rows(
        "structural",
        "reshape reshape_as view view_as contiguous flatten unflatten ravel squeeze unsqueeze",
        axis="reshape",
    ),
    **_rows(
        "structural",
        """
        transpose permute movedim moveaxis swapaxes swapdims t adjoint T mT H mH __getitem__ narrow
        select index_select gather take_along_dim split split_with_sizes tensor_split chunk unbind
        unfold expand expand_as broadcast_to repeat repeat_interleave tile diagonal as_strided
        view_as_real view_as_complex
        """,
        axis="view",
    ),
    **_rows(
        "structural",
        """
        clone roll flip fliplr flipud rot90 tril triu
        to type type_as float double half bfloat16 cpu cuda positive __pos__ real
        pixel_shuffle pixel_unshuffle channel_shuffle requires_grad_
        max_pool1d max_pool2d max_pool3d max_pool1d_with_indices max_pool2d_with_indices
        max_pool3d_with_indices adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
        adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices
        adaptive_max_pool3d_with_indices topk sort
        """,
    ),
    **_rows("structural", "detach_", detaches=True),
    **_rows("extremum", "amax amin max min", axis="reduction"),
    **_rows("extremum", "maximum minimum"),
    **_rows(
        "mixing",
        """
        avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
        adaptive_avg_pool3d interpolate upsample grid_sample cumsum diff
        fft_fft fft_ifft fft_fft2 fft_ifft2 fft_fftn fft_ifftn fft_rfft fft_irfft fft_rfft2
        fft_irfft2 fft_rfftn fft_irfftn fft_fftshift fft_ifftshift im2col col2im fold
        """,
    ),
    **_rows("reduction", "mean sum", axis="reduction"),
    **_rows("scale", "rsqrt rsqrt_ sqrt sqrt_ reciprocal reciprocal_"),
    **_rows("scale", "std var norm vector_norm linalg_vector_norm", axis="reduction", norm=True),
    **_rows("dropout", "dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout"),
    **_rows("concat", "cat concat concatenate"),
    **_rows("concat", "stack", axis="stack"),
    **_rows("sum", "add add_ __add__ __radd__ __iadd__ sub sub_ subtract __sub__ __isub__"),
    **_rows("sum", "__rsub__ rsub", reflected=True),
    **_rows("negation", "neg neg_ __neg__ negative negative_"),
    **_rows("product", "mul mul_ multiply __mul__ __rmul__ __imul__"),
    **_rows("matmul", "matmul __matmul__ __rmatmul__ bmm mm"),
    **_rows("matmul", "mv dot inner outer tensordot", axis="contraction"),
    **_rows("einsum", "einsum"),
    **_rows("division", "div div_ divide true_divide __div__ __idiv__ __truediv__ __itruediv__"),
    **_rows("division", "__rdiv__ __rtruediv__", reflected=True),
    **_rows("fill", "masked_fill masked_fill_ where"),
    **_rows("masked_scatter", "masked_scatter", axis="kept"),
    **_rows("assignment", "__setitem__"),
    **_rows("overwrite", "copy_"),
    **_rows("placing", "scatter scatter_"),
    **_rows("scatter", "index_add index_add_", axis="scatter"),
    **_rows("scatter", "scatter_add scatter_add_"),
    **_rows("activation", "sigmoid sigmoid_", gate=True),
    **_rows("activation", "hardsigmoid", gate=True, inplace_flag=True),
    **_rows(
        "activation",
        "relu relu6 silu mish hardswish hardtanh elu selu celu leaky_relu threshold",
        inplace_flag=True,
    ),
    **_rows("activation", "pow pow_ __pow__ float_power", power=True),
    **_rows(
        "activation",
        """
        gelu relu_ silu_ tanh tanh_ elu_ hardswish_ hardtanh_ leaky_relu_ softplus softsign
        tanhshrink logsigmoid log_sigmoid erf _threshold acos asin atan square square_ exp exp_
        expm1 log log1p abs sin cos clamp clamp_ clamp_min clamp_max clip
        """,
    ),
    **_rows(
        "convolution",
        "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
    ),
    **_rows("linear", "linear"),
    **_rows("addmm", "addmm"),
    **_rows("pad", "pad"),
    **_rows("layer_norm", "layer_norm"),
    **_rows("rms_norm", "rms_norm"),
    **_rows("group_norm", "group_norm"),
    **_rows("batch_norm", "batch_norm"),
    **_rows("softmax", "softmax log_softmax"),
    **_rows("logsumexp", "logsumexp special_logsumexp", axis="reduction"),
    **_rows("triangular", "linalg_solve_triangular"),
    **_rows("attention", "scaled_dot_product_attention"),
    **_rows(
        "composite",
        "multi_head_attention_forward normalize glu baddbmm addcmul instance_norm prelu lstm gru",
    ),
    **_rows(None, "argmax argmin prod all any count_nonzero", axis="reduction"),
    **_rows(None, "detach", detaches=True),
    **_rows(
        None,
        """
        zeros_like ones_like full_like empty_like rand_like randn_like
        new_zeros new_ones new_full new_empty new_tensor
        """,
        shape_only=True,
    ),
}

#: name of an operator with rules -> its kind
KIND: dict[str, str] = {
    name: operator.kind for name, operator in OPERATORS.items() if operator.kind is not None
}
_UNKNOWN = Operator(kind=None, axis="aligned")


def operator_of(name: str) -> Operator:
    """The row of an operator; one without properties where the table has none."""
    return OPERATORS.get(name, _UNKNOWN)


def weight_place(name: str) -> tuple[int, str] | None:
    """Position and name of the weight among the arguments; None: no linear operator."""
    kind = KIND.get(name)
    return None if kind is None else KINDS[kind].weight_at


@cache
def rules_of_form(form: Form) -> Mapping[str, Callable[..., Any]]:
    """Kind -> its rule in one form.

    Rules are named by strings, and imported here, because they need the mode that applies them.
    """
    places = {name: getattr(kind, form).partition(":") for name, kind in KINDS.items()}
    return {
        kind: load(f"{_MODULES.get(module, module)}:{name}")
        for kind, (module, _, name) in places.items()
    }


def operator_name(func: Callable[..., Any]) -> str:
    """The spelling-independent name of a torch function: `Tensor.T.__get__` is `T`."""
    name = getattr(func, "__name__", str(func))
    if name == "__get__":
        return str(getattr(getattr(func, "__self__", None), "__name__", name))
    return name
