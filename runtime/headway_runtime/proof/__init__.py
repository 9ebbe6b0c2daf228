"""What is tried before a pod is ready, because requests of several clients share a run: do rows leave each other alone,
and does padding change an answer?

In come a program, its layout and its buckets; out comes a layout that joins no more than was shown to be harmless, and
a report for each dimension. All of it are trials by samples, not proofs; none ends a pod.

Read `rows` and `padding` first (what is asked, and what follows from the answer); then `trial` and `cases` (the trial
of one dimension, and the rows that it takes), `runs` (a run as the engine would make it), `noise` and `compare` (when
two answers are the same; `deciders` looks behind labels), `samples`, `fills` and `bounds` (what inputs are made of, and
what fills them up). `ones` stands apart: whether a size that export begins at 2 may be 1.
"""
