"""Every rule of the inspector in one table: what is refused, under which reason, and what the author can do about it.

The sentence is what a model author reads in the condition; the detail, the record and the JSON path are added to it.
"""

# ruff: noqa: E501  # a table: one rule a line

from dataclasses import dataclass

UNSAFE = "UnsafeArtifact"
NOT_ARCHIVE = "NotAnArchive"
VERSION = "IncompatibleVersion"
UNSUPPORTED = "UnsupportedProgram"


@dataclass(frozen=True, slots=True)
class Rule:
    """``reason`` of the condition, and a sentence for the author."""

    reason: str
    sentence: str


_REEXPORT = "save it again with `torch.export.save`"

RULES: dict[str, Rule] = {
    # archive
    "archive.file": Rule(NOT_ARCHIVE, "the artifact is not a readable regular file"),
    "archive.not_zip": Rule(NOT_ARCHIVE, "the artifact is no zip archive, and so no .pt2; give a file that `headway export` or `torch.export.save` wrote (docs/export.md)"),
    "archive.pickle": Rule(NOT_ARCHIVE, "the artifact is a pickle that `torch.save` wrote (a module or its weights), which is never opened; export the model instead (docs/export.md)"),
    "archive.torchscript": Rule(NOT_ARCHIVE, "the artifact is a TorchScript file, which holds code and pickles and is never opened; export the model instead (docs/export.md)"),
    "archive.end_record": Rule(UNSAFE, f"the archive has a comment, trailing bytes or several volumes; {_REEXPORT}"),
    "archive.zip64": Rule(UNSAFE, f"the archive's records of sizes beyond 32 bits disagree; {_REEXPORT}"),
    "archive.layout": Rule(UNSAFE, f"archive entries overlap, leave gaps or are out of order; {_REEXPORT}"),
    "archive.entry": Rule(UNSAFE, f"an archive entry is compressed, encrypted, a link or a folder, or carries a field that torch does not write; {_REEXPORT}"),
    "archive.local_header": Rule(UNSAFE, f"an entry is described differently in its two headers; {_REEXPORT}"),
    "archive.name": Rule(UNSAFE, f"an entry name is duplicated, has characters that a plain export never writes, or leaves the archive's folder; {_REEXPORT}"),
    "archive.record": Rule(UNSAFE, "the archive holds a record that a plain torch.export program does not have (native code, pickles, other files)"),
    "archive.missing": Rule(NOT_ARCHIVE, f"the archive lacks a record of the PT2 format; {_REEXPORT}"),
    "archive.header": Rule(VERSION, f"the archive is of another format or version; {_REEXPORT} from a current torch"),
    "archive.legacy": Rule(VERSION, f"the archive has the layout of torch 2.7 and older, which is made of pickles; {_REEXPORT} from torch 2.13 or later"),
    "archive.record_size": Rule(UNSAFE, "a record is larger than its kind may be"),
    "archive.crc": Rule(UNSAFE, "a record does not match its checksum; the file was damaged or altered after it was saved"),
    "archive.unused": Rule(UNSAFE, f"the archive holds weights that nothing refers to; {_REEXPORT}"),
    "archive.programs": Rule(UNSUPPORTED, "the archive holds no program, or more programs than Headway reads; save fewer in one file"),
    # JSON and schema
    "json.size": Rule(UNSAFE, "a JSON record is too large or nested too deeply"),
    "json.syntax": Rule(UNSAFE, "a record is not valid JSON"),
    "json.duplicate": Rule(UNSAFE, "a JSON object has the same key twice"),
    "json.number": Rule(UNSAFE, "a JSON number is NaN, infinite or has more than 64 bits"),
    "schema.version": Rule(VERSION, "the program was saved with a schema that this Headway does not read; export it with torch 2.13, 2.14 or 2.15"),
    "schema.torch": Rule(VERSION, "the program was exported with a torch that this Headway does not support; export it with torch 2.13, 2.14 or 2.15"),
    "schema.unknown": Rule(UNSAFE, "the program has a field or a kind of value that is not part of the format Headway accepts"),
    "schema.missing": Rule(UNSAFE, "the program lacks a field of the format"),
    "schema.type": Rule(UNSAFE, "a field of the program has another type than the format says"),
    "schema.value": Rule(UNSAFE, "a field of the program has a value that an export never writes"),
    # names, expressions, guards, trees
    "name.value": Rule(UNSAFE, "a name in the graph is not a plain identifier"),
    "name.printable": Rule(UNSAFE, "a name is empty, too long or has unprintable characters; rename it in the model and export again"),
    "name.twice": Rule(UNSUPPORTED, "two inputs or two outputs have the same name once their keys are joined by dots; rename one and export again"),
    "expression.syntax": Rule(UNSAFE, "a symbolic size is not an expression of the accepted grammar"),
    "expression.size": Rule(UNSAFE, "a symbolic size is too long or nested too deeply"),
    "expression.function": Rule(UNSAFE, "a symbolic size uses a function outside of the accepted grammar"),
    "expression.symbol": Rule(UNSAFE, "a symbol is not a plain size symbol, or has no declared range"),
    "expression.range": Rule(UNSAFE, "a dynamic size has a declared range that is empty or negative"),
    "expression.number": Rule(UNSAFE, "a number in a symbolic size is out of range"),
    "guard.syntax": Rule(UNSAFE, "a guard of the program cannot be parsed"),
    "guard.size": Rule(UNSAFE, "the program has more, or longer, guards than an export writes"),
    "guard.form": Rule(UNSAFE, "a guard of the program has a form that Headway cannot check, and it is never ignored"),
    "guard.input": Rule(UNSAFE, "a guard speaks of something that is no tensor input of the program"),
    "tree.form": Rule(UNSAFE, "a tree spec (the nesting of inputs or outputs) is malformed"),
    "tree.type": Rule(UNSAFE, "inputs or outputs are nested in a type other than tuple, list, dict or a mapping with string keys; return one of those"),
    # tensors
    "tensor.dtype": Rule(UNSAFE, "a tensor has an element type that Headway does not load"),
    "tensor.layout": Rule(UNSAFE, "a tensor is not dense (strided)"),
    "tensor.device": Rule(UNSAFE, "a tensor is on a device other than cpu or cuda"),
    "tensor.shape": Rule(UNSAFE, "a tensor has impossible sizes or strides"),
    "tensor.bounds": Rule(UNSAFE, "a weight reaches outside of the bytes stored for it"),
    "tensor.overlap": Rule(UNSUPPORTED, "a weight is an expanded or overlapping view; give the module `.clone()` of it and export again"),
    "tensor.protocol": Rule(UNSUPPORTED, "an input or output has an element type that the Open Inference Protocol cannot carry; convert it inside the model"),
    "tensor.mismatch": Rule(UNSAFE, "the graph and the stored weight disagree on shape or element type"),
    "tensor.bool": Rule(UNSAFE, "a boolean weight holds bytes other than 0 and 1"),
    "weight.missing": Rule(UNSAFE, "the program uses a weight that the archive does not hold"),
    "weight.pickle": Rule(UNSAFE, "a weight is stored as a pickle; only plain tensors are loaded"),
    # graph
    "graph.size": Rule(UNSAFE, "the program has too many operations"),
    "graph.value": Rule(UNSAFE, "a value is used before it is computed, computed twice, or of the wrong kind"),
    "graph.signature": Rule(UNSAFE, "the program's signature does not match its graph"),
    "input.kind": Rule(UNSUPPORTED, "an input is a number; pass it as a tensor, or fix it when exporting"),
    "input.symbol": Rule(UNSUPPORTED, "a dynamic size cannot be derived from the inputs; make some input axis exactly that size"),
    "operator.unlisted": Rule(UNSAFE, "the program uses an operator that is not on the list of safe operators"),
    "operator.arguments": Rule(UNSAFE, "an operator is called with arguments that its signature does not have"),
    "operator.training": Rule(UNSAFE, "the program was exported in training mode; call .eval() before exporting"),
    "operator.random": Rule(UNSAFE, "the program draws random numbers; its answers could not be reproduced"),
    "operator.unwritten": Rule(UNSAFE, "the program asks for memory that nobody has written (torch.empty); use torch.zeros or torch.full, or leave out `.run_decompositions()`"),
    "operator.allocation": Rule(UNSAFE, "an operator makes a tensor of more elements than constants may ask for (2^27); store it as a buffer, or derive it from an input"),
    "operator.loop": Rule(UNSUPPORTED, "the program has a while_loop, which may never end; use `scan` or `map`, or a Python loop, which export unrolls"),
    "operator.vmap": Rule(UNSUPPORTED, "the program holds an unfinished torch.vmap; call `.run_decompositions()` on it before saving"),
    "operator.version": Rule(VERSION, "the program uses an operator of an older torch; replace it and export the program again with torch 2.15"),
    "operator.value": Rule(UNSAFE, "an argument of an operator has a value that is not accepted"),
    "write.parameter": Rule(UNSUPPORTED, "the program writes to a parameter; keep state in inputs and outputs instead"),
    "write.branch": Rule(UNSUPPORTED, "a branch of the program writes to one of its operands"),
    "write.shared": Rule(UNSUPPORTED, "the program writes to a buffer whose storage other weights share"),
    # text generation
    "decoder.contract": Rule(UNSUPPORTED, "the program is to generate text, and is not as the contract headway.generate/v1 says; export it with `headway export --task generate`"),
    "decoder.metadata": Rule(UNSAFE, "block tables, lengths or slots of the cache are computed by the program or used outside of attention; they may only be handed on"),
    "decoder.layers": Rule(UNSAFE, "attention over the cache is not called once for each layer 0, 1, 2, …, or with heads or numbers that the cache cannot have"),
    "decoder.place": Rule(UNSAFE, "attention over the cache may only be called by the main graph of a program"),
    # records beside the program
    "sample.pickle": Rule(UNSAFE, "the example inputs hold more than plain tensors; set `program.example_inputs = None` before saving, or save it with `headway_runtime.export.export_model`"),
    "record.form": Rule(UNSAFE, "extra/headway.json is not a record of a version this Headway reads; write it with `headway_runtime.export.export_model`"),
    "record.steps": Rule(UNSUPPORTED, "the steps that extra/headway.json declares do not fit the programs of the archive"),
    "record.generation": Rule(UNSUPPORTED, "what extra/headway.json says of text generation is missing or does not fit the program; write it with `headway export --task generate`"),
    # native code
    "native.unsigned": Rule(UNSAFE, "the artifact holds native code, which only a builder's signature lets in; sign it with `headway sign --native`, publish the .sig beside it, and name the Secret with that key in spec.artifact.trust.builderKeys"),
    "native.form": Rule(UNSAFE, "the native package is not as `headway compile` of this version writes it; compile the program again"),
    "native.torch": Rule(VERSION, "the native package was compiled with another torch than this runtime's; compile the program with the runtime's version"),
    "native.processor": Rule(VERSION, "the native package needs a processor that this machine does not have; compile it for an older --target, or let the pods run on other nodes"),
    # the inspector itself
    "inspector.limits": Rule(UNSAFE, "inspecting the artifact took more memory or time than is allowed"),
    "inspector.malformed": Rule(UNSAFE, "the artifact is malformed in a way that the inspector does not know"),
}  # fmt: skip
