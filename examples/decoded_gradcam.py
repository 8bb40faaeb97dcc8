"""Hiding and revealing games for layer methods: which layer, and which tokens, carry the class?

    python examples/decoded_gradcam.py --model DIR --head DIR --data dev.tsv --items 100

Every sentence of the data (`label<TAB>text` with a header line, .gz or not) is explained by
Grad-CAM and decoded-gradcam at every layer (after Hou and Castanon 2023: local gradients, softmax
over the vocabulary; `embeddings` is their layer 0), and once by lrp and random. A method then names
the top 10, 20, ... 50 % of the tokens, and two games are played with them (after Hou and Castanon
2023): hiding takes them out of the text and revealing takes out all others. `mask` puts the mask
token in their place; `remove` closes the attention to them instead. What is printed is the mean
probability of the class that the whole text had. Hiding is better low, revealing better high.
"""

import argparse
import gzip
from collections.abc import Iterator
from pathlib import Path

import transexplain as te
from transexplain.models.hidden_states import run_layers
from transexplain.models.loaded_model import LoadedModel
from transexplain.types.scores import EvaluatedMethod, MethodSpec, MetricSpec


def main() -> None:
    """Read the sentences, explain them, play, print one table per game."""
    options = arguments()
    model = te.load_model(options.model)
    texts = list(read(options.data))[: options.items]
    print(f"{len(texts)} sentences of {options.data}, {options.model}")
    games = [
        MetricSpec(name=game, params={"baseline": gone}, label=f"{game}, {gone}")
        for gone in ("mask", "remove")
        for game in ("hiding", "revealing")
    ]
    for table in te.evaluate(model, texts, players(model, texts[0], options.head), games):
        heads = "".join(f"{share:>7.0%}" for share in table.x)
        print(f"\n{table.metric}\n{'probability at top':<26}{heads}   mean   95 % interval")
        for row in table.rows:
            points = "".join(f"{point:>7.3f}" for point in row.curve)
            low, high = row.interval or (float("nan"),) * 2
            print(f"{row.method:<26}{points}{row.mean:>7.3f}   {low:.3f} to {high:.3f}")


def players(model: LoadedModel, text: str, head: str | None) -> list[EvaluatedMethod]:
    """lrp, Grad-CAM at the embeddings and at every layer, and there decoded."""
    found = [EvaluatedMethod(label="lrp", method=MethodSpec(name="lrp"))]
    for layer in ("embeddings", *range(count_layers(model, text))):
        for name in ("layer-gradcam", "decoded-gradcam"):
            if name == "decoded-gradcam" and layer == "embeddings":
                continue  # there both are the same
            of_name = {"weights": "local"} if name == "layer-gradcam" else {"head": head}
            method = MethodSpec(name=name, params={"layer": layer, **of_name})
            found.append(EvaluatedMethod(label=f"{name} {layer}", method=method))
    return found


def count_layers(model: LoadedModel, text: str) -> int:
    """How many layers a forward pass calls."""
    encoded = model.encode([te.Item(id="first", index=0, content=text)])
    return len(run_layers(model, model.collate(encoded)).outputs)  # type: ignore[arg-type]


def read(path: str) -> Iterator[str]:
    """The sentences of a TSV file, gzipped or not."""
    given = Path(path).read_bytes()
    text = (gzip.decompress(given) if path.endswith(".gz") else given).decode()
    for line in text.splitlines()[1:]:
        yield line.partition("\t")[2]


def arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", required=True, help="directory or hub id of the classifier")
    parser.add_argument("--head", help="directory of its masked language model; default: the model")
    parser.add_argument("--data", required=True, help="label<TAB>text, with a header line")
    parser.add_argument("--items", type=int, default=100, help="sentences from the top")
    return parser.parse_args()


if __name__ == "__main__":
    main()
