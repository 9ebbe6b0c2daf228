"""From a decoder of transformers to a ``.pt2`` of the contract ``headway.generate/v1``.

    decoder = load("SmolLM2-135M-Instruct", torch.float32)
    export_decoder(decoder.model, decoder.tokenizer, path="chat.pt2")

Nothing is written before the program gave the answers of transformers to golden prompts, alone and beside others.

Read in this order: ``decoder`` (the whole path), ``source`` (where decoders come from), ``accept`` (what cannot be
exported), ``step`` (how an unmodified model becomes one step of the scheduler), ``operator`` (attention as torch traces
it), ``texts`` and ``facts`` (what the record says), ``golden`` (what transformers itself answers), ``replay`` and
``prove`` (what the program answers).
"""

from headway_runtime.export.generate.decoder import DTYPES, export_decoder
from headway_runtime.export.generate.source import Pretrained, load

__all__ = ["DTYPES", "Pretrained", "export_decoder", "load"]
