"""From a URI to a program that is safe to load: fetch, digest, signature, inspect, repack. No torch and no
numpy is imported here.

What enters is a ``.pt2`` from anyone; what leaves is a directory made only of what was checked: canonical JSON and
raw weights. ``torch.export.load`` on such a file is code execution; here nothing of it is evaluated, imported,
resolved or unpickled.

Read in this order: ``rules`` (every refusal in one table), ``inspection`` (the whole path), then by subject:
``archive`` (zip), ``strict_json`` and ``schema`` (the format), ``symbolic``, ``guards`` and ``expression`` (sizes),
``trees`` (nesting), ``tensors`` (weights), ``operators``, ``arguments``, ``preconditions`` and ``writes`` (what a
program may do), ``graph``, ``higher_order``, ``interface`` and ``program`` (the translation), ``samples`` and
``record`` (what lies beside it). ``repack`` writes the result. ``signatures`` (who vouches for the file) is a story of
its own. ``fetch`` and ``isolate`` are the edges; ``__main__`` is the init container.
"""
