"""The file itself: a zip of one form, JSON without surprises, the schema of torch's documents, and raw tensors.

Enters: bytes. Leaves: entries whose place and size are certain, and JSON values of known fields and bounded size. Read
``archive`` first (over ``zipformat``), then ``strict_json``, ``schema`` and ``tensors``.
"""
