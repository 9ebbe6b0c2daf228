"""From a URI to a program that is safe to load: fetch, digest, signature, inspect, repack. No torch and no
numpy is imported here.

What enters is a ``.pt2`` from anyone; what leaves is a directory made only of what was checked: canonical JSON and
raw weights. ``torch.export.load`` on such a file is code execution; here nothing of it is evaluated, imported,
resolved or unpickled.

Read ``rules`` (every refusal in one table) and ``inspection`` (the whole path) first. Then by subject, a folder each:
``container`` (the file: zip, JSON, schema, tensors), ``sizes`` (symbols, guards, dimensions), ``translate`` (a checked
document into our own program: operators, arguments, writes), ``beside`` (records and examples), ``signatures`` (who
vouches for the file). ``programs``, ``storage`` and ``wiring`` are for archives that hold several programs; ``decoder``
says what a program that generates text must be, and ``decoding`` holds it to that; ``repack`` writes the result,
``report`` tells people. ``fetch`` and ``isolate`` are the edges; ``__main__`` is the init container.
"""
