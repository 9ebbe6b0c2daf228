"""What is tried before a pod is ready, because requests of several clients share a run: do rows leave each other alone,
and does padding change an answer?

In come the program, its layout and its buckets; out comes a layout that joins no more than was shown to be harmless,
and a report for each dimension. All of it are trials by samples, not proofs.
"""
