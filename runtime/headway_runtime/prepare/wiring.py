"""Do the declared steps fit the programs of the archive? Asked of prepared documents; no tensor is looked at.

Programs are joined by names: an input of one that an earlier one returns is taken from there, every other is an input
of the request. So a name that is misspelt would become an input that no client sends: what a ``preprocess`` program
returns and nobody takes is therefore refused.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from headway_runtime.prepare import decoding
from headway_runtime.prepare.beside import steps as beside
from headway_runtime.prepare.beside.steps import CHANNELS, Image, Labels, Steps, Text
from headway_runtime.prepare.errors import Refusal

Document = Mapping[str, Any]
Tensor = Mapping[str, Any]

IDS = ("int64", "int32")
PIXELS = ("float32", "float16", "bfloat16")
SCORES = (*PIXELS, "float64")


def chain(name: str, steps: Steps) -> tuple[str, ...]:
    """The programs that run, in order."""
    return tuple(found for found in (steps.preprocess, name, steps.postprocess) if found is not None)


def requested(stages: Sequence[Document]) -> dict[str, Tensor]:
    """The inputs that no earlier program gives: those of a request, by name."""
    given: set[str] = set()
    found: dict[str, Tensor] = {}
    for stage in stages:
        found |= {i["name"]: i for i in stage["inputs"] if i["name"] not in given | found.keys()}
        given |= {o["name"] for o in stage["outputs"]}
    return found


def check(name: str, programs: Mapping[str, Document], *, tokenizer: bool) -> None:
    """Raises Refusal ``record.steps``, with the path inside of ``steps``, when the steps of this program do not fit."""
    if "steps" not in programs[name]:
        return
    steps = beside.parse(programs[name]["steps"])
    names = chain(name, steps)
    for field, other in (("preprocess", steps.preprocess), ("postprocess", steps.postprocess)):
        if other is not None:
            _check_stage(field, other, names, programs)
    stages = [programs[stage] for stage in names]
    for at in range(len(names) - 1):
        _check_wires(names[at], stages[at]["outputs"], stages[at + 1 :], all_taken=names[at] == steps.preprocess)
    inputs = requested(stages)
    for stage in stages:
        _check_shared(stage["inputs"], inputs)
    if steps.text is not None:
        _check_text(steps.text, inputs, tokenizer)
    if steps.image is not None:
        _check_image(steps.image, inputs)
    _check_inputs(steps, inputs)
    if steps.labels is not None:
        _check_labels(steps.labels, stages[-1]["outputs"], programs[name].get("facts", {}).get("labels", ()))


def _check_stage(field: str, other: str, names: Sequence[str], programs: Mapping[str, Document]) -> None:
    if other not in programs:
        raise _refusal(f"the archive holds no program {other!r}; it holds {', '.join(sorted(programs))}", field)
    if decoding.is_decoder(programs[other]):
        raise _refusal(f"{other!r} generates text, which is no step of a request", field)
    if names.count(other) > 1:
        raise _refusal(f"{other!r} would run twice", field)
    if "steps" in programs[other]:
        raise _refusal(f"{other!r} is a step, and has steps of its own", field)


def _check_wires(name: str, outputs: Sequence[Tensor], later: Sequence[Document], *, all_taken: bool) -> None:
    """What later programs take by name has the type and the shape with which this one gives it."""
    takers = [i for stage in later for i in stage["inputs"]]
    wanted = {i["name"] for i in takers}
    for output in outputs:
        for taker in takers:
            if taker["name"] == output["name"] and (why := _mismatch(output, taker)):
                raise _refusal(f"output {output['name']} of {name} is not what the next program takes: {why}")
    lost = [output["name"] for output in outputs if output["name"] not in wanted]
    if lost and (all_taken or len(lost) == len(outputs)):
        raise _refusal(
            f"no program after {name} has an input {lost[0]!r}, as its output is called; there are {sorted(wanted)}"
        )


def _check_shared(tensors: Sequence[Tensor], inputs: Mapping[str, Tensor]) -> None:
    """An input of the request that two programs take is the same for both."""
    for tensor in tensors:
        other = inputs.get(tensor["name"])
        if other is not None and (why := _mismatch(other, tensor)):
            raise _refusal(f"two programs have an input {tensor['name']}, and they differ: {why}")


def _mismatch(given: Tensor, taken: Tensor) -> str | None:
    if given["dtype"] != taken["dtype"]:
        return f"{given['dtype']}, not {taken['dtype']}"
    if len(given["shape"]) != len(taken["shape"]):
        return f"{len(given['shape'])} axes, not {len(taken['shape'])}"
    for axis, (one, other) in enumerate(zip(given["shape"], taken["shape"], strict=True)):
        if isinstance(one, int) and isinstance(other, int) and one != other:
            return f"axis {axis} is {one}, not {other}"
    return None


def _check_text(text: Text, inputs: Mapping[str, Tensor], tokenizer: bool) -> None:
    if not tokenizer:
        raise _refusal("the archive holds no extra/tokenizer.json; give one with headway export --tokenizer", "text")
    ids = _named(text.ids, inputs, "text", "ids")
    if ids["dtype"] not in IDS or len(ids["shape"]) != 2:
        raise _refusal(
            f"{text.ids} is {ids['dtype']} with {len(ids['shape'])} axes, not integer ids [rows, length]", "text", "ids"
        )
    for field, name in (("mask", text.mask), ("types", text.types)):
        if name is not None and (
            why := _mismatch({**ids, "dtype": ""}, {**_named(name, inputs, "text", field), "dtype": ""})
        ):
            raise _refusal(f"{name} has not the shape of {text.ids}: {why}", "text", field)
    length = ids["shape"][1]
    if isinstance(length, int) and text.max_length is not None and text.max_length > length:
        raise _refusal(f"{text.max_length} tokens, and {text.ids} has {length}", "text", "maxLength")


def _check_image(image: Image, inputs: Mapping[str, Tensor]) -> None:
    tensor = _named(image.tensor, inputs, "image", "tensor")
    pixels = (*(image.size or ("", "")), CHANNELS[image.channels])
    wanted = [pixels[at] for at in ((2, 0, 1) if image.layout == "NCHW" else (0, 1, 2))]
    normalised = image.scale is not None or image.mean or image.std
    if tensor["dtype"] not in PIXELS and (tensor["dtype"] != "uint8" or normalised):
        allowed = f"{', '.join(PIXELS)}, or uint8 without scale, mean and std"
        raise _refusal(f"{image.tensor} is {tensor['dtype']}; pixels are {allowed}", "image", "tensor")
    if why := _mismatch({"dtype": tensor["dtype"], "shape": ["", *wanted]}, tensor):
        raise _refusal(f"{image.tensor} does not take images as {image.layout}: {why}", "image", "tensor")


def _check_inputs(steps: Steps, inputs: Mapping[str, Tensor]) -> None:
    """The inputs that steps add have names that nothing else has."""
    filled = [*(steps.text.fills if steps.text else ()), *((steps.image.tensor,) if steps.image else ())]
    if len(set(filled)) != len(filled):
        raise _refusal("text and image give the same input")
    left = inputs.keys() - set(filled)
    for field, step in (("text", steps.text), ("image", steps.image)):
        if step is not None and step.input in inputs:
            raise _refusal(f"{step.input!r} is the name of an input of a program", field, "input")
    if steps.text and steps.image and steps.text.input == steps.image.input:
        raise _refusal(f"text and image are both called {steps.text.input!r}; other inputs are {sorted(left)}")


def _check_labels(labels: Labels, outputs: Sequence[Tensor], names: Sequence[str]) -> None:
    found = {o["name"]: o for o in outputs}
    if not names:
        raise _refusal("the record has no labels", "labels")
    if labels.output not in found:
        raise _refusal(f"no output is called {labels.output!r}; there are {', '.join(found)}", "labels", "output")
    for field, name in (("label", labels.label), ("score", labels.score)):
        if name in found:
            detail = f"{name!r} is an output of the program; call this one otherwise: {field}=NAME"
            raise _refusal(detail, "labels", field)
    scores = found[labels.output]
    if scores["dtype"] not in SCORES or not scores["shape"]:
        raise _refusal(
            f"{labels.output} is {scores['dtype']} with {len(scores['shape'])} axes, not scores", "labels", "output"
        )
    classes = scores["shape"][-1]
    if not isinstance(classes, int) or classes != len(names):
        count = classes if isinstance(classes, int) else "a dynamic number of"
        raise _refusal(f"{labels.output} has {count} classes, and there are {len(names)} labels", "labels", "output")
    if labels.top > len(names):
        raise _refusal(f"the best {labels.top} of {len(names)} labels", "labels", "top")


def _named(name: str, inputs: Mapping[str, Tensor], *path: str) -> Tensor:
    if name not in inputs:
        raise _refusal(f"no input of the request is called {name!r}; there are {', '.join(inputs)}", *path)
    return inputs[name]


def _refusal(detail: str, *path: str) -> Refusal:
    """``path`` from the outside in."""
    refusal = Refusal("record.steps", detail)
    for step in reversed(path):
        refusal.inside(step)
    return refusal
