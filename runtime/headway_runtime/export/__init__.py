"""From a module to a ``.pt2`` that says everything: names of dimensions and outputs, golden samples, facts for clients.

    export_model(encoder, {"ids": ids, "mask": mask}, path="encoder.pt2", outputs=["embedding"],
                 dynamic_shapes={"ids": {0: Size("batch", 1, 64), 1: Size("sequence", 1, 256)}, "mask": {…}})

The program itself is what ``torch.export.save`` writes; the rest is one JSON record beside it, ``extra/headway.json``.
Nothing is written before the file was inspected, prepared, loaded and run as a pod does, with the module's own answers.

Read in this order: ``model`` (the whole path for a module), ``annotate`` (for a ``.pt2`` that exists), ``sizes``,
``eager`` (what the module answers), ``facts`` (the record), ``proof`` (what a pod would say), ``steps`` (a text or an
image through all of them), ``rewrite`` (the zip), ``merge`` (programs of other files), ``errors`` (what torch says, in
words that help); ``asked``, ``specs`` and ``source`` serve the command line.
"""

from headway_runtime.export.annotate import annotate
from headway_runtime.export.errors import ExportError
from headway_runtime.export.facts import Facts
from headway_runtime.export.model import Exported, export_model
from headway_runtime.export.sizes import Size
from headway_runtime.prepare.beside.steps import Image, Labels, Steps, Text

__all__ = ["ExportError", "Exported", "Facts", "Image", "Labels", "Size", "Steps", "Text", "annotate", "export_model"]
