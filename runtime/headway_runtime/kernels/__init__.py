"""What a decoder computes outside of torch: attention over the paged cache, and multiplication by weights that were
packed when the pod loaded. A reference in plain torch says what is right; native code in `native/` is fast, where it
was built.
"""
