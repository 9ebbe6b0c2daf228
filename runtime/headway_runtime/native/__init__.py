"""Native code for a checked program: compiled in a build step, signed, and run in place of the register machine.

Two ends. The build step (`headway compile`, on a machine with a compiler) enters with a ``.pt2`` and leaves with a
native package: the same ``.pt2``, one library for each program, and what they need of a machine. It inspects and
repacks the artifact like a pod, so nothing is compiled that a pod would not run as data. The pod enters with a package
whose digest a builder has signed, and leaves with the prepared directory of that ``.pt2`` and the libraries beside it.

Native code is as trustworthy as its builder: nothing can be inspected in it. Everything else stays as it is: shapes,
guards and the element types of the outputs are ours, and weights stay in ``weights.bin``, mapped and shared.

Read in this order: ``package`` (the file), ``processor`` (what a library needs of a machine), ``unpack`` (the pod's
prepare step); these import no torch. Then ``build`` (the whole build step), by subject: ``compiler``, ``tracing`` (the
machine as a graph), ``lowering`` (the graph as a library), ``assumptions`` (what that took for granted of the sizes),
``trial`` (does it answer like the machine?). ``runner`` is the pod's end.
"""
