"""What a decoder computes outside of torch: attention over the paged cache, and multiplication by weights that were
packed when the pod loaded. A reference in plain torch says what is right; native code in `native/` is fast, where it
was built.

Tensors of a program go in, which is a stranger's, with metadata of the engine: everything is checked before memory is
touched. Read `reference` (what is computed), `cache` (blocks of keys and values, and who computes), `linear` (packed
weights); then `native/headway.h`, and there `multiply.h`, the loop that all of it is made of. `library` loads the code,
`../../build_kernels.py` builds it. docs/decisions/0022 says why it is as it is.
"""
