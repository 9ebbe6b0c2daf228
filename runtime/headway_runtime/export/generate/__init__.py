"""From a decoder of transformers to a ``.pt2`` of the contract ``headway.generate/v1``.

    export_decoder(model, tokenizer, path="chat.pt2")

Read in this order: ``decoder`` (the whole path), ``step`` (how an unmodified model becomes one step of the scheduler),
``operator`` (attention as torch traces it), ``texts`` and ``facts`` (what the record says), ``golden`` (what
transformers itself answers).
"""

from headway_runtime.export.generate.decoder import export_decoder

__all__ = ["export_decoder"]
